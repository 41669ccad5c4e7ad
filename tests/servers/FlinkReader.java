// Reads tables of an Iceberg catalog as streams in a small Flink of this process, and prints each row when it comes.
// Started as a single file by tests/servers/flink.py: statements, and as the last one a query, or an INSERT, which goes
// on until the process is ended. A row is a line: its kind, and the texts of its columns, with a tab between them. NULL
// is \N, and a backslash is before a backslash, an n for the end of a line, and a t for a tab.
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

public class FlinkReader {
    public static void main(String[] statements) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", "1");
        settings.setString("taskmanager.memory.network.min", "16m");
        settings.setString("taskmanager.memory.network.max", "16m");
        settings.setString("taskmanager.memory.managed.size", "32m");
        int last = statements.length - 1;
        if (statements[last].startsWith("INSERT")) {
            settings.setString("execution.checkpointing.interval", "1s"); // it commits with each
            settings.setString("restart-strategy.type", "none"); // a failure is to be seen
        }
        TableEnvironment tables = TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        for (int number = 0; number < last; number++) {
            tables.executeSql(statements[number]);
        }
        TableResult result = tables.executeSql(statements[last]);
        try (CloseableIterator<Row> rows = result.collect()) {
            while (rows.hasNext()) {
                Row row = rows.next();
                StringBuilder line = new StringBuilder(row.getKind().shortString());
                for (int column = 0; column < row.getArity(); column++) {
                    line.append('\t').append(text(row.getField(column)));
                }
                out.println(line);
                out.flush();
            }
        }
        result.await();
    }

    private static String text(Object value) {
        if (value == null) {
            return "\\N";
        }
        return value.toString().replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n");
    }
}
