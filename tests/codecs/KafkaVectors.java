import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Encodes messages with Kafka's own classes: of each line "NAME VERSION JSON" the bytes in hex.
 * Needs a JDK; run by make_vectors.py.
 */
class KafkaVectors {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ", 3);
            short version = Short.parseShort(words[1]);
            Class<?> converter =
                Class.forName("org.apache.kafka.common.message." + words[0] + "DataJsonConverter");
            Object message = converter.getMethod("read", JsonNode.class, short.class)
                .invoke(null, mapper.readTree(words[2]), version);
            ByteBuffer bytes = MessageUtil.toByteBufferAccessor((Message) message, version).buffer();
            byte[] copy = new byte[bytes.remaining()];
            bytes.get(copy);
            System.out.println(HexFormat.of().formatHex(copy));
        }
    }
}
