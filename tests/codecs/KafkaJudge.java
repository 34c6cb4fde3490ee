import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.RequestHeader;

/**
 * Reads bytes with Kafka's own classes, and says what they mean. Of each line "NAME VERSION HEX" (a body), or
 * "request HEX" (a frame without its length, as a broker's network thread reads it), one line on the standard output:
 * "refused REASON", or "CLIENT MESSAGE TAGS", where CLIENT is the client id in hex, MESSAGE the message written again without
 * unknown tagged fields ("-" where Kafka cannot write what it has read), and TAGS the unknown tagged fields of all
 * structs. Needs a JDK; run by kafka_judge.py.
 */
class KafkaJudge {
    private static final HexFormat HEX = HexFormat.of();
    private static final String MESSAGES = "org.apache.kafka.common.message.";

    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var verdicts = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ", -1);
            try {
                verdicts.append(words[0].equals("request") ? request(words[1]) : body(words[0], words[1], words[2]));
            } catch (Exception refusal) {
                Throwable reason = refusal;
                while (reason.getCause() != null) {
                    reason = reason.getCause();
                }
                verdicts.append("refused ").append(String.valueOf(reason).replaceAll("\\s+", " "));
            }
            verdicts.append('\n');
        }
        System.out.print(verdicts);
    }

    private static String body(String name, String words, String hex) throws Exception {
        short version = Short.parseShort(words);
        Object body = messageClass(name).getConstructor(Readable.class, short.class)
            .newInstance(new ByteBufferAccessor(ByteBuffer.wrap(HEX.parseHex(hex))), version);
        return said("", (Message) body, version);
    }

    private static String request(String hex) throws Exception {
        ByteBuffer buffer = ByteBuffer.wrap(HEX.parseHex(hex));
        RequestHeader header = RequestHeader.parse(buffer);
        Method parse = Arrays.stream(AbstractRequest.class.getMethods())
            .filter(method -> method.getName().equals("parseRequest")).findFirst().orElseThrow();
        boolean readable = parse.getParameterTypes()[2] == Readable.class;
        Object source = readable ? new ByteBufferAccessor(buffer) : buffer;
        ApiKeys api = header.apiKey();
        Object parsed = parse.invoke(null, api, header.apiVersion(), source);
        AbstractRequest request = (AbstractRequest) parsed.getClass().getField("request").get(parsed);
        return said(header.clientId(), (Message) request.data(), header.apiVersion());
    }

    private static Class<?> messageClass(String name) throws ClassNotFoundException {
        if (name.endsWith("Value")) {
            return Class.forName("org.apache.kafka.coordinator.group.generated." + name);
        }
        return Class.forName(MESSAGES + name + (name.startsWith("ConsumerProtocol") ? "" : "Data"));
    }

    private static String said(String client, Message message, short version) throws Exception {
        List<String> tags = new ArrayList<>();
        takeTags(message, tags);
        tags.sort(null);
        String written = "-";
        try {
            var cache = new ObjectSerializationCache();
            ByteBuffer bytes = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(bytes), cache, version);
            written = "'" + HEX.formatHex(bytes.array());
        } catch (RuntimeException unwritten) {
            // Each malformed byte of a string has become three, and so the string too long.
        }
        String id = HEX.formatHex(client.getBytes(StandardCharsets.UTF_8));
        return "'" + id + " " + written + " '" + String.join(",", tags);
    }

    /** Takes the unknown tagged fields out of a message and all structs in it. */
    private static void takeTags(Message message, List<String> tags) throws IllegalAccessException {
        for (RawTaggedField tag : message.unknownTaggedFields()) {
            tags.add(Integer.toUnsignedString(tag.tag()) + "=" + HEX.formatHex(tag.data()));
        }
        message.unknownTaggedFields().clear();
        for (Field field : message.getClass().getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers())) {
                continue;
            }
            field.setAccessible(true);
            Object value = field.get(message);
            if (value instanceof Message inner) {
                takeTags(inner, tags);
            } else if (value instanceof Collection<?> items) {
                for (Object item : items) {
                    if (item instanceof Message inner) {
                        takeTags(inner, tags);
                    }
                }
            }
        }
    }
}
