// Reads lines of debezium-json as Kafka Connect and Debezium's own classes read them, and prints what each makes of them.
// Started as a single file (`java DebeziumReader.java`) by tests/servers/debezium.py.
import io.debezium.data.Envelope;
import io.debezium.serde.DebeziumSerdes;
import io.debezium.transforms.ExtractNewRecordState;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

public class DebeziumReader {
    public static void main(String[] arguments) throws Exception {
        JsonConverter reads = new JsonConverter();
        reads.configure(Map.of("schemas.enable", "true"), false);
        JsonConverter writes = new JsonConverter();
        writes.configure(Map.of("schemas.enable", "false", "decimal.format", "NUMERIC"), false);
        ExtractNewRecordState<SourceRecord> flat = new ExtractNewRecordState<>();
        flat.configure(Map.of("delete.tombstone.handling.mode", "rewrite", "add.fields", "op,source.sequence,ts_ns"));
        Serde<JsonNode> serde = DebeziumSerdes.payloadJson(JsonNode.class);
        serde.configure(Map.of("from.field", "after"), false);
        ObjectMapper mapper = new ObjectMapper().enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS);
        mapper.setNodeFactory(JsonNodeFactory.withExactBigDecimals(true));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            byte[] bytes = line.getBytes(StandardCharsets.UTF_8);
            SchemaAndValue read = reads.toConnectData("feed", bytes);
            ObjectNode found = mapper.createObjectNode();
            found.put("schema", read.schema().name());
            found.set("envelope", mapper.readTree(writes.fromConnectData("feed", read.schema(), read.value())));
            if (read.schema().name().endsWith(".Envelope")) {
                Schema own = Envelope.defineSchema()
                    .withName(read.schema().name())
                    .withRecord(read.schema().field("before").schema())
                    .withSource(read.schema().field("source").schema())
                    .withTransaction(read.schema().field("transaction").schema())
                    .build().schema();
                found.put("is_own", own.equals(read.schema()));
                SourceRecord record =
                    new SourceRecord(Map.of(), Map.of(), "feed", 0, null, null, read.schema(), read.value());
                SourceRecord row = flat.apply(record);
                if (row == null) {
                    found.putNull("flat");
                } else {
                    found.set("flat", mapper.readTree(writes.fromConnectData("feed", row.valueSchema(), row.value())));
                }
                found.set("serde", serde.deserializer().deserialize("feed", bytes));
            }
            out.println(mapper.writeValueAsString(found));
        }
        out.flush();
    }
}
