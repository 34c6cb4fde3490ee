import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordType;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Encodes records of the offsets topic as the broker does: of each line "TYPE key JSON" or "TYPE VERSION JSON" the key
 * or value in hex. Needs a JDK; run by make_offsets_topic_vectors.py.
 */
class OffsetsTopicVectors {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ", 3);
            short type = Short.parseShort(words[0]);
            JsonNode json = mapper.readTree(words[2]);
            byte[] bytes;
            if (words[1].equals("key")) {
                ApiMessage key = CoordinatorRecordJsonConverters.readRecordKeyFromJson(json, type);
                bytes = serde.serializeKey(CoordinatorRecord.tombstone(key));
            } else {
                ApiMessage key = CoordinatorRecordType.fromId(type).newRecordKey();
                short version = Short.parseShort(words[1]);
                ApiMessage value = CoordinatorRecordJsonConverters.readRecordValueFromJson(json, type, version);
                bytes = serde.serializeValue(CoordinatorRecord.record(key, new ApiMessageAndVersion(value, version)));
            }
            System.out.println(HexFormat.of().formatHex(bytes));
        }
    }
}
