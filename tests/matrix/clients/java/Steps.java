import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;

/** Runs the named steps one after the other, and prints one line of JSON per step. */
final class Steps {
    static final int RECORDS = 100;
    static final int PARTITIONS = 4;
    private static final long WAIT_MILLISECONDS = 30_000;

    /** A step. It throws if the client does not work as expected. */
    interface Step {
        void run() throws Exception;
    }

    private final Map<String, Step> known = new LinkedHashMap<>();

    Steps with(String name, Step step) {
        known.put(name, step);
        return this;
    }

    /** Runs the steps, whose names are separated by commas, and ends the process. */
    void run(String names) {
        for (String name : names.split(",")) {
            String error = null;
            try {
                known.get(name).run();
            } catch (Throwable problem) {
                error = text(problem);
            }
            String told = error == null ? "null" : quoted(error);
            System.out.println("{\"step\": " + quoted(name) + ", \"ok\": " + (error == null) + ", \"error\": " + told + "}");
            System.out.flush();
        }
        Runtime.getRuntime().halt(0); // Threads of a client that failed must not keep the process alive.
    }

    static void check(boolean holds, String text) {
        if (!holds) {
            throw new IllegalStateException(text);
        }
    }

    /** Calls the condition until it holds. The condition itself waits, for instance by polling a consumer. */
    static void until(String text, BooleanSupplier holds) {
        long deadline = System.nanoTime() + WAIT_MILLISECONDS * 1_000_000;
        while (!holds.getAsBoolean()) {
            check(System.nanoTime() < deadline, "timed out: " + text);
        }
    }

    private static String text(Throwable problem) {
        List<String> parts = new ArrayList<>();
        for (Throwable each = problem; each != null && parts.size() < 3; each = each.getCause()) {
            parts.add(each.getClass().getSimpleName() + ": " + each.getMessage());
        }
        return String.join("; ", parts);
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                out.append('\\').append(each);
            } else {
                out.append(each < ' ' ? ' ' : each);
            }
        }
        return out.append('"').toString();
    }
}
