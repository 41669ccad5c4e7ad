import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.BinaryLogFileReader;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.Event;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.EventType;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.deserialization.EventDeserializer;
import com.github.shyiko.mysql.binlog.event.deserialization.EventDeserializer.CompatibilityMode;
import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;

/**
 * Decodes binlog files with mysql-binlog-connector-java and prints one JSON line of what that took.
 *
 * <p>Usage: Decode file|wire HOST PORT USER FILE... The longest file is decoded once in the same way before the clock
 * starts, so that the code is compiled. The library is set to do the least: times stay numbers, strings stay bytes, and
 * JSON stays as binary as MySQL's.
 */
public final class Decode {
  private static final int FILE_START = 4;

  private long rows;
  private long events;
  private int ends;

  public static void main(String[] arguments) throws IOException {
    String mode = arguments[0];
    String host = arguments[1];
    int port = Integer.parseInt(arguments[2]);
    String user = arguments[3];
    List<File> files = Arrays.stream(arguments).skip(4).map(File::new).toList();

    File longest = files.stream().max(Comparator.comparing(File::length)).orElseThrow();
    new Decode().read(mode, host, port, user, List.of(longest));

    Decode decode = new Decode();
    long began = System.nanoTime();
    long used = cpuNanoseconds();
    decode.read(mode, host, port, user, files);
    System.out.printf(
        Locale.ROOT,
        "{\"rows\": %d, \"events\": %d, \"wall\": %.6f, \"cpu\": %.6f, \"rss\": %d}%n",
        decode.rows,
        decode.events,
        (System.nanoTime() - began) / 1e9,
        (cpuNanoseconds() - used) / 1e9,
        maxRss());
  }

  private void read(String mode, String host, int port, String user, List<File> files) throws IOException {
    if (mode.equals("wire")) {
      readWire(host, port, user, files);
    } else {
      readFiles(files);
    }
  }

  private void readFiles(List<File> files) throws IOException {
    for (File file : files) {
      try (BinaryLogFileReader reader = new BinaryLogFileReader(file, deserializer())) {
        for (Event event = reader.readEvent(); event != null; event = reader.readEvent()) {
          count(event);
        }
      }
    }
  }

  /** Reads as a replica does, from the start of the first file to the end of the last one. */
  private void readWire(String host, int port, String user, List<File> files) throws IOException {
    BinaryLogClient client = new BinaryLogClient(host, port, user, "");
    client.setServerId(1_000_000 + ProcessHandle.current().pid());
    client.setEventDeserializer(deserializer());
    client.setBinlogFilename(files.get(0).getName());
    client.setBinlogPosition(FILE_START);
    client.setKeepAlive(false);
    IOException[] failure = new IOException[1];
    client.registerLifecycleListener(
        new BinaryLogClient.AbstractLifecycleListener() {
          @Override
          public void onEventDeserializationFailure(BinaryLogClient from, Exception exception) {
            failure[0] = new IOException(exception);
          }
        });
    client.registerEventListener(
        event -> {
          count(event);
          if (ends == files.size()) {
            disconnect(client);
          }
        });
    client.connect();
    if (failure[0] != null) {
      throw failure[0];
    }
  }

  private static void disconnect(BinaryLogClient client) {
    try {
      client.disconnect();
    } catch (IOException exception) {
      throw new UncheckedIOException(exception);
    }
  }

  private void count(Event event) {
    events++;
    EventData data = event.getData();
    if (data instanceof WriteRowsEventData written) {
      rows += written.getRows().size();
    } else if (data instanceof UpdateRowsEventData updated) {
      rows += updated.getRows().size();
    } else if (data instanceof DeleteRowsEventData deleted) {
      rows += deleted.getRows().size();
    } else if (event.getHeader().getEventType() == EventType.ROTATE && event.getHeader().getTimestamp() != 0) {
      ends++; // those that the server makes up have no time
    }
  }

  private static EventDeserializer deserializer() {
    EventDeserializer deserializer = new EventDeserializer();
    deserializer.setCompatibilityMode(
        CompatibilityMode.DATE_AND_TIME_AS_LONG_MICRO, CompatibilityMode.CHAR_AND_BINARY_AS_BYTE_ARRAY);
    return deserializer;
  }

  private static long cpuNanoseconds() {
    return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
  }

  /** The most bytes of memory that the process had. */
  private static long maxRss() throws IOException {
    return Files.readAllLines(Path.of("/proc/self/status")).stream()
        .filter(line -> line.startsWith("VmHWM:"))
        .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")) << 10)
        .sum();
  }
}
