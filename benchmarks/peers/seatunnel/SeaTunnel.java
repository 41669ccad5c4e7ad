import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.config.JoinConfig;
import com.hazelcast.config.NetworkConfig;
import com.hazelcast.instance.impl.HazelcastInstanceImpl;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import org.apache.seatunnel.common.config.Common;
import org.apache.seatunnel.common.config.DeployMode;
import org.apache.seatunnel.engine.client.SeaTunnelClient;
import org.apache.seatunnel.engine.client.job.ClientJobProxy;
import org.apache.seatunnel.engine.common.config.ConfigProvider;
import org.apache.seatunnel.engine.common.config.JobConfig;
import org.apache.seatunnel.engine.common.config.SeaTunnelConfig;
import org.apache.seatunnel.engine.server.SeaTunnelServerStarter;

/**
 * Copies the benchmark's table into Iceberg, in a Hadoop catalog, with SeaTunnel's own engine; runs until it is stopped.
 *
 * <p>Usage: SeaTunnel HOST PORT USER DATABASE TABLE FOLDER. It cannot go on where it was stopped. It prints a JSON line
 * when its job runs.
 */
public final class SeaTunnel {
  // what is under way while the process is frozen must not fail the job: a checkpoint, a call, the client's connection
  private static final String FROZEN_MILLISECONDS = "3600000";
  private static final String JOB =
      """
      env {
        parallelism = %d
        job.mode = "STREAMING"
        checkpoint.interval = 3000
        checkpoint.timeout = 3600000
      }
      source {
        MySQL-CDC {
          result_table_name = "source"
          base-url = "jdbc:mysql://%s:%s/%s?useSSL=false&allowPublicKeyRetrieval=true"
          username = "%s"
          password = ""
          table-names = ["%s.%s"]
          server-id = "5800-5831"
          server-time-zone = "UTC"
          startup.mode = "initial"
          debezium { database.queryInterceptors = "BinlogStatusInterceptor" }
        }
      }
      sink {
        Iceberg {
          source_table_name = "source"
          catalog_name = "lake"
          iceberg.catalog.config = { type = "hadoop", warehouse = "%s" }
          namespace = "%s"
          table = "%s"
          iceberg.table.write-props = { write.format.default = "parquet" }
          iceberg.table.primary-keys = "id"
          iceberg.table.upsert-mode-enabled = true
          case_sensitive = true
        }
      }
      """;

  public static void main(String[] arguments) {
    try {
      copy(arguments);
    } catch (Exception error) { // threads of the engine would go on
      error.printStackTrace();
      System.exit(1);
    }
  }

  private static void copy(String[] arguments) throws Exception {
    String database = arguments[3];
    String table = arguments[4];
    Path folder = Files.createDirectories(Path.of(arguments[5]).toAbsolutePath());
    int cores = Runtime.getRuntime().availableProcessors();
    Path warehouse = folder.resolve("warehouse");
    Path job = folder.resolve("job.conf");
    Files.writeString(
        job,
        String.format(
            JOB, cores, arguments[0], arguments[1], database, arguments[2], database, table, warehouse.toUri(),
            database, table));

    Common.setDeployMode(DeployMode.CLIENT);
    System.setProperty("SEATUNNEL_HOME", folder.toString());
    SeaTunnelConfig settings = ConfigProvider.locateAndGetSeaTunnelConfig();
    String cluster = "benchmarks-" + ProcessHandle.current().pid();
    settings.getHazelcastConfig().setClusterName(cluster);
    settings.getHazelcastConfig().setProperty("hazelcast.operation.call.timeout.millis", FROZEN_MILLISECONDS);
    NetworkConfig network = settings.getHazelcastConfig().getNetworkConfig();
    network.setPublicAddress("127.0.0.1").getInterfaces().setEnabled(true).addInterface("127.0.0.1");
    JoinConfig join = network.getJoin();
    join.getAutoDetectionConfig().setEnabled(false);
    join.getMulticastConfig().setEnabled(false);
    HazelcastInstanceImpl engine = SeaTunnelServerStarter.createHazelcastInstance(settings);

    ClientConfig access = ConfigProvider.locateAndGetClientConfig();
    access.setClusterName(cluster);
    access.setProperty("hazelcast.client.heartbeat.timeout", FROZEN_MILLISECONDS);
    int port = engine.getCluster().getLocalMember().getAddress().getPort();
    access.getNetworkConfig().setAddresses(List.of("127.0.0.1:" + port));
    try (SeaTunnelClient client = new SeaTunnelClient(access)) {
      ClientJobProxy running = client.createExecutionContext(job.toString(), new JobConfig(), settings).execute();
      System.out.printf(Locale.ROOT, "{\"event\": \"ready\", \"at\": %.3f}%n", System.currentTimeMillis() / 1e3);
      System.err.println(running.waitForJobCompleteV2());
    }
    engine.shutdown();
  }
}
