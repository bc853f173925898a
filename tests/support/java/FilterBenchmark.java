package bloomseal.harness;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import org.apache.parquet.column.values.bloomfilter.BlockSplitBloomFilter;
import org.apache.parquet.io.api.Binary;

/** How long parquet-java takes to hash and insert many values, and to hash and find them. The loops are methods, so that they get compiled. */
public final class FilterBenchmark {
    private FilterBenchmark() {}

    /**
     * The file holds values of {@code width} bytes each, one after another; width 8 with {@code int64} means little-endian longs, otherwise
     * byte strings. Answers {nanoseconds to hash and insert all, nanoseconds to hash and find all, values found}, medians of the rounds.
     */
    public static String run(String file, int width, boolean int64, int bitsetBytes, int rounds, int warmUp) throws Exception {
        byte[] raw = Files.readAllBytes(Paths.get(file, new String[0]));
        int count = raw.length / width;
        long[] longs = new long[int64 ? count : 0];
        Binary[] strings = new Binary[int64 ? 0 : count];
        ByteBuffer buffer = ByteBuffer.wrap(raw).order(ByteOrder.LITTLE_ENDIAN);
        for (int i = 0; i < count; i++) {
            if (int64) {
                longs[i] = buffer.getLong(8 * i);
            } else {
                strings[i] = Binary.fromConstantByteArray(raw, i * width, width);
            }
        }
        long[] insert = new long[rounds];
        long[] probe = new long[rounds];
        int found = 0;
        for (int round = -warmUp; round < rounds; round++) {
            BlockSplitBloomFilter filter = new BlockSplitBloomFilter(bitsetBytes, bitsetBytes);
            long start = System.nanoTime();
            if (int64) {
                insertLongs(filter, longs);
            } else {
                insertStrings(filter, strings);
            }
            long middle = System.nanoTime();
            found = int64 ? findLongs(filter, longs) : findStrings(filter, strings);
            long end = System.nanoTime();
            if (round >= 0) {
                insert[round] = middle - start;
                probe[round] = end - middle;
            }
        }
        Arrays.sort(insert);
        Arrays.sort(probe);
        return "{\"insert\": " + insert[rounds / 2] + ", \"probe\": " + probe[rounds / 2] + ", \"found\": " + found + "}";
    }

    private static void insertLongs(BlockSplitBloomFilter filter, long[] values) {
        for (int i = 0; i < values.length; i++) {
            filter.insertHash(filter.hash(values[i]));
        }
    }

    private static void insertStrings(BlockSplitBloomFilter filter, Binary[] values) {
        for (int i = 0; i < values.length; i++) {
            filter.insertHash(filter.hash(values[i]));
        }
    }

    private static int findLongs(BlockSplitBloomFilter filter, long[] values) {
        int found = 0;
        for (int i = 0; i < values.length; i++) {
            if (filter.findHash(filter.hash(values[i]))) {
                found++;
            }
        }
        return found;
    }

    private static int findStrings(BlockSplitBloomFilter filter, Binary[] values) {
        int found = 0;
        for (int i = 0; i < values.length; i++) {
            if (filter.findHash(filter.hash(values[i]))) {
                found++;
            }
        }
        return found;
    }
}
