// Reads a table of an Iceberg catalog as a stream in a small Flink of this process, and prints each row when it comes.
// Started as a single file by tests/servers/flink.py: the statement that makes the catalog, then the query.
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

public class FlinkReader {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", "1");
        settings.setString("taskmanager.memory.network.min", "16m");
        settings.setString("taskmanager.memory.network.max", "16m");
        settings.setString("taskmanager.memory.managed.size", "32m");
        TableEnvironment tables = TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        tables.executeSql(arguments[0]);
        try (CloseableIterator<Row> rows = tables.executeSql(arguments[1]).collect()) {
            while (rows.hasNext()) {
                Row row = rows.next();
                StringBuilder line = new StringBuilder(row.getKind().shortString());
                for (int column = 0; column < row.getArity(); column++) {
                    line.append('\t').append(row.getField(column));
                }
                System.out.println(line);
                System.out.flush();
            }
        }
    }
}
