import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
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

    /** Reports that a member of a group has read records of some partitions. */
    static void progress(int member, Collection<Integer> partitions) {
        event(member, "\"partitions\": " + partitions);
    }

    /** Reports an error that a member of a group has shown. */
    static void trouble(int member, Throwable problem) {
        event(member, "\"error\": " + quoted(text(problem)));
    }

    private static void event(int member, String what) {
        String at = String.format(Locale.ROOT, "%.3f", System.currentTimeMillis() / 1000.0);
        String line = "{\"at\": " + at + ", \"member\": " + member + ", " + what + "}\n";
        synchronized (System.out) {
            System.out.print(line);
            System.out.flush();
        }
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
