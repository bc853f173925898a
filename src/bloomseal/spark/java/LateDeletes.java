package bloomseal.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Paths;
import java.nio.file.attribute.FileAttribute;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.OutputCommitter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter;
import org.apache.parquet.hadoop.ParquetOutputCommitter;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Set;
import scala.collection.immutable.Set$;

/**
 * Spark's commit protocol, but that each write has a folder of its own until it commits, and that an overwrite removes the
 * old files when the new ones are in their place, and not before the first of them is begun: a job that fails, or is
 * refused, leaves the table as it was, and one that reads the table finds its rows. By itself all writes to a table share
 * one folder, which each removes when it ends, and with it what tasks of others have committed.
 *
 * While old files lie beside new ones there is no _SUCCESS, and a folder in _temporary says that a job is under way: by
 * that readers know. A dynamic overwrite is an ordinary job here, which replaces the folders that it has written to.
 *
 * Written for Janino, hence without lambdas and generics.
 */
public final class LateDeletes extends SQLHadoopMapReduceCommitProtocol {
  private static final String OUTPUT = "mapreduce.output.fileoutputformat.outputdir";
  private static final String MARKS = "mapreduce.fileoutputcommitter.marksuccessfuljobs";
  /** After so many milliseconds without a commit the folder of another write is one of a driver that was killed. */
  private static final long FORGOTTEN = 7L * 24 * 3600 * 1000;

  private final String job;
  private final String table;
  private final boolean dynamic;
  /** Null: one that the application has chosen, with places of its own. */
  private transient FileOutputCommitter committer;
  private transient List replaced;
  private transient Set written;
  private transient boolean moving;
  private transient boolean deleting;

  public LateDeletes(String job, String table, boolean dynamic) {
    super(job, table, false);
    this.job = job;
    this.table = table;
    this.dynamic = dynamic;
  }

  @Override
  public OutputCommitter setupCommitter(TaskAttemptContext context) {
    // Of a dynamic overwrite Spark names its own staging folder here.
    context.getConfiguration().set(OUTPUT, table);
    OutputCommitter found = super.setupCommitter(context);
    boolean parquet = found.getClass() == ParquetOutputCommitter.class;
    if (!parquet && found.getClass() != FileOutputCommitter.class) {
      return found;
    }
    context.getConfiguration().set(OUTPUT, own().toString());
    TablePlaces.sign(context.getConfiguration());
    try {
      committer = parquet ? new ParquetOutputCommitter(own(), context) : new FileOutputCommitter(own(), context);
    } catch (IOException e) {
      throw new IllegalStateException(e.toString(), e);
    }
    return committer;
  }

  /** Where Spark has the files of partitions that lie elsewhere, too: it removes the folder. */
  private Path own() {
    return new Path(table, ".spark-staging-" + job);
  }

  @Override
  public boolean deleteWithJob(FileSystem files, Path path, boolean recursive) {
    if (replaced == null) {
      replaced = new ArrayList();
    }
    return replaced.add(path);
  }

  @Override
  public void setupJob(JobContext context) {
    Configuration conf = context.getConfiguration();
    try {
      Guard.check(conf, new Path(table), false);
      for (int i = 0; replaced != null && i < replaced.size(); i++) {
        Guard.checkReplaced(conf, (Path) replaced.get(i));
      }
      SignedTail.needSigner(conf, new Path(table));
      // By version 2 the files of each task are moved as it ends: whoever fails afterwards leaves them beside the old.
      conf.setInt("mapreduce.fileoutputcommitter.algorithm.version", 1);
      super.setupJob(context);
      if (committer != null) {
        own().getFileSystem(conf).create(new Path(own(), "_began"), true).close();
      }
    } catch (IOException e) {
      throw new IllegalStateException(e.toString(), e);
    }
  }

  @Override
  public void setupTask(TaskAttemptContext context) {
    super.setupTask(context);
    SignedTail.forget(context.getConfiguration());
    written = (Set) Set$.MODULE$.empty();
  }

  @Override
  public String newTaskTempFile(TaskAttemptContext context, Option folder, FileNameSpec name) {
    if (dynamic && folder.isDefined()) {
      written = (Set) written.incl(folder.get());
    }
    return super.newTaskTempFile(context, folder, name);
  }

  @Override
  public FileCommitProtocol.TaskCommitMessage commitTask(TaskAttemptContext context) {
    Set tails = SignedTail.written(context.getConfiguration());
    // Where Spark has the folders of a dynamic overwrite; its own set of them is private in some versions.
    Tuple2 told = (Tuple2) super.commitTask(context).obj();
    return SignedTail.told(new Tuple2(told._1(), written), tails);
  }

  @Override
  public void commitJob(JobContext context, Seq told) {
    Configuration conf = context.getConfiguration();
    Seq tasks = SignedTail.plain(told);
    Set tails = SignedTail.tails(told);
    try {
      FileSystem files = new Path(table).getFileSystem(conf);
      if (committer != null && !files.exists(new Path(own(), "_began"))) {
        throw new IOException("bloomseal.BloomsealError: another write to the table removed what this one had written, and nothing "
            + "was added to it: write again, when the other one is done (" + own() + ")");
      }
      List folders = dynamic ? written(tasks) : replaced;
      List old = new ArrayList();
      for (int i = 0; folders != null && i < folders.size(); i++) {
        Path folder = (Path) folders.get(i);
        Guard.checkReplaced(conf, folder); // of a dynamic overwrite nobody knew it before
        list(folder.getFileSystem(conf), folder, old);
      }
      boolean marks = conf.getBoolean(MARKS, true);
      if (folders != null) {
        files.mkdirs(busy());
        files.delete(new Path(table, "_SUCCESS"), false);
      }
      conf.setBoolean(MARKS, false);
      moving = true;
      FileStatus[] ended = committer == null ? new FileStatus[0] : files.listStatus(committer.getJobAttemptPath(context));
      for (int i = 0; i < ended.length; i++) {
        if (!ended[i].getPath().getName().equals("_temporary")) {
          move(conf, files, ended[i].getPath(), new Path(table), tails);
        }
      }
      super.commitJob(context, tasks);
      if (folders != null) {
        files.mkdirs(busy()); // some committers remove all of _temporary
        deleting = true;
      }
      for (int i = 0; i < old.size(); i++) {
        remove(((Path) old.get(i)).getFileSystem(conf), (Path) old.get(i));
      }
      conf.setBoolean(MARKS, marks);
      if (marks) {
        files.create(new Path(table, "_SUCCESS"), true).close();
      }
      if (folders != null) {
        free(files);
      }
    } catch (IOException e) {
      throw new IllegalStateException(e.toString(), e);
    }
  }

  /** A task's files to the table, signed where that is wanted. Folders are made, not moved: another write may make the same, and one would lie in the other. */
  private static void move(Configuration conf, FileSystem files, Path from, Path to, Set tails) throws IOException {
    FileStatus[] found = files.listStatus(from);
    for (int i = 0; i < found.length; i++) {
      Path place = new Path(to, found[i].getPath().getName());
      if (found[i].isDirectory()) {
        makeFolder(files, found[i].getPath(), place);
        move(conf, files, found[i].getPath(), place, tails);
        continue;
      }
      SignedTail.sign(conf, found[i].getPath(), place, tails);
      if (!files.rename(found[i].getPath(), place)) {
        throw new IOException("a file can't be moved to " + place);
      }
    }
  }

  private static void makeFolder(FileSystem files, Path like, Path folder) throws IOException {
    if (!(files instanceof LocalFileSystem)) {
      files.mkdirs(folder);
    } else if (!Files.exists(local(folder), new LinkOption[0])) {
      // Hadoop's own starts a process for each, to give it its permissions.
      Files.createDirectories(local(folder), new FileAttribute[0]);
      Files.setPosixFilePermissions(local(folder), Files.getPosixFilePermissions(local(like), new LinkOption[0]));
    }
  }

  @Override
  public void abortJob(JobContext context) {
    super.abortJob(context);
    try {
      FileSystem files = new Path(table).getFileSystem(context.getConfiguration());
      if (deleting) {
        files.mkdirs(busy()); // new files beside old ones
      } else if (moving) {
        takeBack(files, new Path(table));
        free(files);
      }
    } catch (IOException e) {
      throw new IllegalStateException(e.toString(), e);
    }
  }

  /** The folders that a dynamic overwrite has written to, those of a catalog's partitions elsewhere among them. */
  private List written(Seq tasks) {
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      Tuple2 told = (Tuple2) ((FileCommitProtocol.TaskCommitMessage) each.next()).obj();
      for (Iterator folders = ((Set) told._2()).iterator(); folders.hasNext();) {
        add(found, new Path(table, (String) folders.next()));
      }
      for (Iterator moves = ((Map) told._1()).iterator(); moves.hasNext();) {
        add(found, new Path((String) ((Tuple2) moves.next())._2()).getParent());
      }
    }
    return found;
  }

  private static void add(List folders, Path folder) {
    if (!folders.contains(folder)) {
      folders.add(folder);
    }
  }

  /** What lies in a folder, a file before its signature, what is in a folder before the folder; but for this job's files, and what others stage. */
  private void list(FileSystem files, Path folder, List found) throws IOException {
    FileStatus[] names = files.exists(folder) ? files.listStatus(folder) : new FileStatus[0];
    for (int round = 0; round < 2 * names.length; round++) {
      int i = round % names.length;
      String name = names[i].getPath().getName();
      if (name.startsWith("_SIGNATURE_") != (round >= names.length)) {
        continue;
      }
      if (name.equals("_temporary") || name.startsWith(".spark-staging") || isOwn(name)) {
        forget(files, names[i].getPath());
        continue;
      }
      if (names[i].isDirectory() && !isLink(files, names[i].getPath())) {
        list(files, names[i].getPath(), found);
      }
      found.add(names[i].getPath());
    }
  }

  /** Removes what drivers have left that were killed. Some object stores know no time of a folder, and say 0. */
  private static void forget(FileSystem files, Path staged) throws IOException {
    boolean shared = staged.getName().equals("_temporary");
    FileStatus[] found = files.globStatus(new Path(staged, shared ? "*" : "_temporary/*"));
    if (!shared && (found == null || found.length == 0)) {
      found = files.globStatus(staged); // killed while it removed its own
    }
    for (int i = 0; found != null && i < found.length; i++) {
      long last = found[i].getModificationTime();
      if (last > 0 && last < System.currentTimeMillis() - FORGOTTEN) {
        files.delete(shared ? found[i].getPath() : staged, true);
      }
    }
  }

  private boolean isOwn(String name) {
    return name.indexOf("-" + job) >= 0;
  }

  private static void remove(FileSystem files, Path path) throws IOException {
    if (isLink(files, path)) {
      Files.delete(local(path)); // and not what it leads to
    } else if (!files.exists(path)) {
      return; // somebody else has removed it
    } else if (!files.getFileStatus(path).isDirectory()) {
      files.delete(path, false);
    } else if (files.listStatus(path).length == 0) {
      try {
        files.delete(path, false);
      } catch (IOException e) {
        return; // somebody has put a file there meanwhile
      }
    }
  }

  private void takeBack(FileSystem files, Path folder) throws IOException {
    FileStatus[] names = files.exists(folder) ? files.listStatus(folder) : new FileStatus[0];
    for (int i = 0; i < names.length; i++) {
      Path path = names[i].getPath();
      if (names[i].isDirectory() && !isLink(files, path)) {
        takeBack(files, path);
      } else if (isOwn(path.getName())) {
        files.delete(path, false);
      }
    }
  }

  private Path busy() {
    return new Path(new Path(table, "_temporary"), "overwrite-" + job);
  }

  private void free(FileSystem files) throws IOException {
    Path shared = busy().getParent();
    files.delete(busy(), true);
    if (files instanceof LocalFileSystem) {
      try {
        Files.deleteIfExists(local(shared));
      } catch (IOException e) {
        return; // others are at work there
      }
    } else if (files.exists(shared) && files.listStatus(shared).length == 0) {
      files.delete(shared, false);
    }
  }

  private static boolean isLink(FileSystem files, Path path) {
    return files instanceof LocalFileSystem && Files.isSymbolicLink(local(path));
  }

  private static java.nio.file.Path local(Path path) {
    return Paths.get(path.toUri().getPath(), new String[0]);
  }
}
