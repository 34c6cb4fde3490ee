// Reads properties files and their sasl.jaas.config with Kafka's own classes, and prints a line for each value, in
// UTF-8 and in hexadecimal. A file or a configuration that Kafka refuses is printed as "refused".

import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.utils.Utils;

public class ClientProperties {
    public static void main(String[] files) {
        for (String file : files) {
            System.out.println("file");
            try {
                Properties found = Utils.loadProps(file);
                for (String key : found.stringPropertyNames()) {
                    System.out.println("property " + hex(key) + " " + hex(found.getProperty(key)));
                }
                String jaas = found.getProperty("sasl.jaas.config");
                if (jaas != null) {
                    login(jaas.trim());
                }
            } catch (Exception refused) {
                System.out.println("refused");
            }
        }
    }

    private static void login(String jaas) {
        Map<String, Object> settings = Map.of("sasl.jaas.config", new Password(jaas));
        for (AppConfigurationEntry entry : JaasContext.loadClientContext(settings).configurationEntries()) {
            System.out.println("module " + hex(entry.getLoginModuleName()));
            for (Map.Entry<String, ?> option : new TreeMap<String, Object>(entry.getOptions()).entrySet()) {
                System.out.println("option " + hex(option.getKey()) + " " + hex((String) option.getValue()));
            }
        }
    }

    private static String hex(String text) {
        return "x" + HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
