import com.mysql.cj.MysqlConnection;
import com.mysql.cj.Query;
import com.mysql.cj.interceptors.QueryInterceptor;
import com.mysql.cj.jdbc.JdbcConnection;
import com.mysql.cj.log.Log;
import com.mysql.cj.protocol.Resultset;
import com.mysql.cj.protocol.ServerSession;
import java.sql.SQLException;
import java.util.Properties;
import java.util.function.Supplier;

/**
 * Answers SHOW MASTER STATUS, which MySQL 8.4 dropped, with SHOW BINARY LOG STATUS.
 *
 * <p>Flink CDC 3.5.0 and SeaTunnel 2.3.8 still ask for it, and so run unchanged. Connector/J makes one for each
 * connection.
 */
public final class BinlogStatusInterceptor implements QueryInterceptor {
  private MysqlConnection connection;

  @Override
  public QueryInterceptor init(MysqlConnection made, Properties properties, Log log) {
    connection = made;
    return this;
  }

  @Override
  @SuppressWarnings("unchecked")
  public <T extends Resultset> T preProcess(Supplier<String> sql, Query query) {
    String asked = sql == null ? null : sql.get();
    if (asked == null || !asked.trim().equalsIgnoreCase("SHOW MASTER STATUS")) {
      return null;
    }
    try {
      return (T) ((JdbcConnection) connection).createStatement().executeQuery("SHOW BINARY LOG STATUS");
    } catch (SQLException error) {
      throw new IllegalStateException(error);
    }
  }

  @Override
  public <T extends Resultset> T postProcess(Supplier<String> sql, Query query, T result, ServerSession session) {
    return null;
  }

  @Override
  public boolean executeTopLevelOnly() {
    return false;
  }

  @Override
  public void destroy() {}
}
