package bloomseal.spark;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.catalog.AlterTablePreEvent;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.DropTablePreEvent;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalog;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogEvent;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogEventListener;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogWithListener;
import org.apache.spark.sql.catalyst.catalog.TableEvent;
import org.apache.spark.sql.classic.SparkSession;
import scala.Function1;
import scala.runtime.BoxedUnit;

/**
 * Keeps two commands from sealed tables of the catalog. An overwrite by saveAsTable drops the table, files and options,
 * before a row of the new one is written, and ANALYZE for columns stores minima and maxima in clear.
 *
 * As spark.sql.extensions it watches the catalog from an application's first session on; `enable` calls watch itself.
 *
 * Written for Janino, hence without lambdas and generics.
 */
public final class CatalogWatch implements ExternalCatalogEventListener, Function1 {
  private ExternalCatalog catalog;
  private Configuration conf;

  public Object apply(Object extensions) {
    // Asked for no rule but once for each session, before its first query.
    ((SparkSessionExtensions) extensions).injectCheckRule(new Function1() {
      public Object apply(Object session) {
        new CatalogWatch().watch((SparkSession) session);
        return new Function1() {
          public Object apply(Object plan) {
            return BoxedUnit.UNIT;
          }
        };
      }
    });
    return BoxedUnit.UNIT;
  }

  /** The catalog of the session's application, if nobody does it yet. */
  public void watch(SparkSession session) {
    ExternalCatalogWithListener shared = session.sharedState().externalCatalog();
    for (Object other : shared.listeners()) {
      if (other.getClass().getName().equals(getClass().getName())) {
        return;
      }
    }
    catalog = shared;
    conf = session.sparkContext().hadoopConfiguration();
    shared.addListener(this);
  }

  public void onEvent(ExternalCatalogEvent event) {
    if (event instanceof DropTablePreEvent && comesFrom("DataFrameWriter", "saveAs") && isSealed((TableEvent) event)) {
      throw new Refused("an overwrite by saveAsTable drops the sealed table " + name((TableEvent) event)
          + " before the new one is written: INSERT OVERWRITE, or DROP TABLE first");
    }
    if (event instanceof AlterTablePreEvent && comesFrom("AnalyzeColumnCommand", "run") && isSealed((TableEvent) event)) {
      throw new Refused("ANALYZE for columns stores minima and maxima of the sealed table " + name((TableEvent) event)
          + " in clear: COMPUTE STATISTICS without FOR COLUMNS");
    }
  }

  /** The event says what is done to a table, and not why. */
  private static boolean comesFrom(String type, String method) {
    StackTraceElement[] stack = Thread.currentThread().getStackTrace();
    for (int i = 0; i < stack.length; i++) {
      if (stack[i].getClassName().endsWith("." + type) && stack[i].getMethodName().startsWith(method)) {
        return true;
      }
    }
    return false;
  }

  private boolean isSealed(TableEvent event) {
    CatalogTable table = catalog.getTable(event.database(), event.name());
    if (table.storage().properties().contains("parquet.encryption.footer.key")
        || table.storage().properties().contains("parquet.encryption.uniform.key")) {
      return true;
    }
    try {
      return table.storage().locationUri().isDefined() && Guard.holdsSealed(conf, new Path(table.location()));
    } catch (IOException e) {
      return false; // the command itself will say what is wrong there
    }
  }

  private static String name(TableEvent event) {
    return event.database() + "." + event.name();
  }

  /** Of what a listener throws, Spark logs all others, and goes on. */
  private static final class Refused extends LinkageError {
    Refused(String why) {
      super("bloomseal.PolicyError: " + why);
    }
  }
}
