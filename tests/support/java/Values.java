package bloomseal.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import org.apache.parquet.column.values.bloomfilter.BloomFilter;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroup;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.parquet.schema.Type;

/**
 * Rows in physical form, as JSON. Numbers are INT32 and INT64, {@code "b:<hex>"} is any binary, {@code "f:<hex>"} the IEEE bits of a
 * float (8 digits) or double (16 digits; accepted for both), so that NaN payloads and signed zeros survive the journey.
 */
public final class Values {
    private Values() {}

    /** Adds the members of {@code object} to {@code group}; a member that the schema does not have is an error. */
    public static void fill(Group group, GroupType type, JsonNode object) {
        int used = 0;
        for (int i = 0; i < type.getFieldCount(); i++) {
            Type field = type.getType(i);
            JsonNode value = object.get(field.getName());
            if (value == null) {
                continue;
            }
            used++;
            if (value.isNull()) {
                continue;
            }
            if (field.isRepetition(Type.Repetition.REPEATED)) {
                for (int k = 0; k < value.size(); k++) {
                    add(group, i, field, (JsonNode) value.get(k)); // Janino takes get(int) for a TreeNode
                }
            } else {
                add(group, i, field, value);
            }
        }
        if (used != object.size()) {
            throw new IllegalArgumentException("a row has members that are not in: " + type);
        }
    }

    private static void add(Group group, int i, Type field, JsonNode value) {
        if (!field.isPrimitive()) {
            fill(group.addGroup(i), field.asGroupType(), value);
            return;
        }
        PrimitiveType.PrimitiveTypeName type = field.asPrimitiveType().getPrimitiveTypeName();
        if (type == PrimitiveType.PrimitiveTypeName.BOOLEAN) {
            group.add(i, value.booleanValue());
        } else if (type == PrimitiveType.PrimitiveTypeName.INT32) {
            group.add(i, asInt(value));
        } else if (type == PrimitiveType.PrimitiveTypeName.INT64) {
            group.add(i, asLong(value));
        } else if (type == PrimitiveType.PrimitiveTypeName.FLOAT) {
            group.add(i, asFloat(value));
        } else if (type == PrimitiveType.PrimitiveTypeName.DOUBLE) {
            group.add(i, asDouble(value));
        } else {
            group.add(i, Binary.fromConstantByteArray(asBytes(value)));
        }
    }

    /** The row as JSON: absent optional fields are null, repeated fields arrays. */
    public static ObjectNode dump(Group group, GroupType type) {
        ObjectNode object = JsonNodeFactory.instance.objectNode();
        for (int i = 0; i < type.getFieldCount(); i++) {
            Type field = type.getType(i);
            int count = ((SimpleGroup) group).getFieldRepetitionCount(i);
            if (field.isRepetition(Type.Repetition.REPEATED)) {
                ArrayNode array = object.putArray(field.getName());
                for (int k = 0; k < count; k++) {
                    array.add(get((SimpleGroup) group, i, k, field));
                }
            } else if (count == 0) {
                object.putNull(field.getName());
            } else {
                object.set(field.getName(), get((SimpleGroup) group, i, 0, field));
            }
        }
        return object;
    }

    private static JsonNode get(SimpleGroup group, int i, int k, Type field) {
        JsonNodeFactory make = JsonNodeFactory.instance;
        if (!field.isPrimitive()) {
            return dump(group.getGroup(i, k), field.asGroupType());
        }
        PrimitiveType.PrimitiveTypeName type = field.asPrimitiveType().getPrimitiveTypeName();
        if (type == PrimitiveType.PrimitiveTypeName.BOOLEAN) {
            return make.booleanNode(group.getBoolean(i, k));
        } else if (type == PrimitiveType.PrimitiveTypeName.INT32) {
            return make.numberNode(group.getInteger(i, k));
        } else if (type == PrimitiveType.PrimitiveTypeName.INT64) {
            return make.numberNode(group.getLong(i, k));
        } else if (type == PrimitiveType.PrimitiveTypeName.FLOAT) {
            int bits = Float.floatToRawIntBits(group.getFloat(i, k));
            return make.textNode("f:" + hex(ByteBuffer.allocate(4).putInt(bits).array()));
        } else if (type == PrimitiveType.PrimitiveTypeName.DOUBLE) {
            long bits = Double.doubleToRawLongBits(group.getDouble(i, k));
            return make.textNode("f:" + hex(ByteBuffer.allocate(8).putLong(bits).array()));
        } else if (type == PrimitiveType.PrimitiveTypeName.INT96) {
            return make.textNode("b:" + hex(group.getInt96(i, k).getBytes()));
        }
        return make.textNode("b:" + hex(group.getBinary(i, k).getBytes()));
    }

    /** parquet-java's own hash of a value of that physical type. */
    public static long hash(BloomFilter filter, PrimitiveType.PrimitiveTypeName type, JsonNode value) {
        if (type == PrimitiveType.PrimitiveTypeName.INT32) {
            return filter.hash(asInt(value));
        } else if (type == PrimitiveType.PrimitiveTypeName.INT64) {
            return filter.hash(asLong(value));
        } else if (type == PrimitiveType.PrimitiveTypeName.FLOAT) {
            return filter.hash(asFloat(value));
        } else if (type == PrimitiveType.PrimitiveTypeName.DOUBLE) {
            return filter.hash(asDouble(value));
        } else if (type == PrimitiveType.PrimitiveTypeName.BOOLEAN) {
            throw new IllegalArgumentException("no Bloom filter is defined for BOOLEAN");
        }
        return filter.hash(Binary.fromConstantByteArray(asBytes(value)));
    }

    public static int asInt(JsonNode value) {
        if (!value.canConvertToInt() || !value.isIntegralNumber()) {
            throw new IllegalArgumentException("not an INT32: " + value);
        }
        return value.intValue();
    }

    public static long asLong(JsonNode value) {
        if (!value.canConvertToLong() || !value.isIntegralNumber()) {
            throw new IllegalArgumentException("not an INT64: " + value);
        }
        return value.longValue();
    }

    public static float asFloat(JsonNode value) {
        byte[] bits = tagged(value, "f:");
        return bits.length == 4 ? ByteBuffer.wrap(bits).getFloat() : (float) ByteBuffer.wrap(bits).getDouble();
    }

    public static double asDouble(JsonNode value) {
        return ByteBuffer.wrap(tagged(value, "f:")).getDouble();
    }

    public static byte[] asBytes(JsonNode value) {
        return tagged(value, "b:");
    }

    private static byte[] tagged(JsonNode value, String tag) {
        if (!value.isTextual() || !value.textValue().startsWith(tag)) {
            throw new IllegalArgumentException("expected a value tagged " + tag);
        }
        return unhex(value.textValue().substring(2));
    }

    public static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder(2 * bytes.length);
        for (int i = 0; i < bytes.length; i++) {
            text.append(Character.forDigit((bytes[i] >> 4) & 15, 16)).append(Character.forDigit(bytes[i] & 15, 16));
        }
        return text.toString();
    }

    public static byte[] unhex(String text) {
        if (text.length() % 2 != 0) {
            throw new IllegalArgumentException("an odd number of hexadecimal digits");
        }
        byte[] bytes = new byte[text.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }
}
