import java.io.File;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Locale;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Copies the benchmark's table into Iceberg, in a Hadoop catalog, with Flink CDC; runs until it is stopped.
 *
 * <p>Usage: FlinkCdc HOST PORT USER DATABASE TABLE FOLDER. Started again on the same folder it goes on from the last
 * checkpoint. It prints a JSON line when its job runs.
 */
public final class FlinkCdc {
  // the types that Flink CDC's documentation gives; Iceberg has the same, or wider ones
  private static final String COLUMNS =
      "id DECIMAL(20, 0) NOT NULL, customer_id INT, order_no STRING, email STRING, status STRING, "
          + "amount DECIMAL(18, 4), qty INT, ratio DOUBLE, created_at TIMESTAMP(6), updated_at TIMESTAMP_LTZ(6), "
          + "attrs STRING, note STRING, PRIMARY KEY (id) NOT ENFORCED";

  public static void main(String[] arguments) throws Exception {
    String database = arguments[3];
    String table = arguments[4];
    File folder = new File(arguments[5]).getAbsoluteFile();
    File checkpoints = new File(folder, "checkpoints");

    Configuration settings = new Configuration();
    settings.setString("parallelism.default", Integer.toString(Runtime.getRuntime().availableProcessors()));
    settings.setString("execution.checkpointing.interval", "3s");
    settings.setString("execution.checkpointing.min-pause", "200ms");
    settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
    settings.setString("execution.checkpointing.storage", "filesystem");
    settings.setString("execution.checkpointing.dir", checkpoints.toURI().toString());
    settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    settings.setString("state.backend.type", "hashmap");
    settings.setString("restart-strategy.type", "none"); // a failure is to be seen
    latest(checkpoints).ifPresent(last -> settings.setString("execution.state-recovery.path", last.toURI().toString()));

    StreamTableEnvironment flink =
        StreamTableEnvironment.create(StreamExecutionEnvironment.getExecutionEnvironment(settings));
    flink.getConfig().set("table.local-time-zone", "UTC");
    flink.executeSql(
        String.format(
            "CREATE TEMPORARY TABLE source (%s) WITH ('connector' = 'mysql-cdc', 'hostname' = '%s', 'port' = '%s', "
                + "'username' = '%s', 'password' = '', 'database-name' = '%s', 'table-name' = '%s', "
                + "'server-id' = '5400-5431', 'server-time-zone' = 'UTC', 'jdbc.properties.useSSL' = 'false', "
                + "'jdbc.properties.allowPublicKeyRetrieval' = 'true', "
                + "'jdbc.properties.queryInterceptors' = 'BinlogStatusInterceptor')",
            COLUMNS, arguments[0], arguments[1], arguments[2], database, table));
    flink.executeSql(
        String.format(
            "CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = 'hadoop', 'warehouse' = '%s')",
            new File(folder, "warehouse").toURI()));
    flink.executeSql(String.format("CREATE DATABASE IF NOT EXISTS lake.`%s`", database));
    flink.executeSql(
        String.format(
            "CREATE TABLE IF NOT EXISTS lake.`%s`.`%s` (%s) WITH ('format-version' = '2')", database, table, COLUMNS));
    TableResult copy = flink.executeSql(String.format("INSERT INTO lake.`%s`.`%s` SELECT * FROM source", database, table));
    JobClient job = copy.getJobClient().orElseThrow();
    while (job.getJobStatus().get() != JobStatus.RUNNING && !job.getJobStatus().get().isGloballyTerminalState()) {
      Thread.sleep(20);
    }
    System.out.printf(Locale.ROOT, "{\"event\": \"ready\", \"at\": %.3f}%n", System.currentTimeMillis() / 1e3);
    copy.await();
  }

  /** The newest complete checkpoint of all earlier jobs. */
  private static Optional<File> latest(File checkpoints) {
    return children(checkpoints)
        .flatMap(FlinkCdc::children)
        .filter(one -> one.getName().startsWith("chk-") && new File(one, "_metadata").exists())
        .max(Comparator.comparingLong(one -> new File(one, "_metadata").lastModified()));
  }

  private static Stream<File> children(File folder) {
    File[] found = folder.listFiles();
    return found == null ? Stream.empty() : Arrays.stream(found);
  }
}
