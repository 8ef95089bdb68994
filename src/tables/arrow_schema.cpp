#include "tables/arrow_schema.h"

#include <utility>

#include "base/text.h"
#include "tables/table_error.h"

namespace tessera {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxFields = 100'000;

// The members of the union Type in Arrow's Schema.fbs.
enum Type : uint8_t {
  kTypeNull = 1,
  kTypeInt = 2,
  kTypeFloat = 3,
  kTypeBinary = 4,
  kTypeUtf8 = 5,
  kTypeBool = 6,
  kTypeDecimal = 7,
  kTypeDate = 8,
  kTypeTime = 9,
  kTypeTimestamp = 10,
  kTypeInterval = 11,
  kTypeList = 12,
  kTypeStruct = 13,
  kTypeUnion = 14,
  kTypeFixedSizeBinary = 15,
  kTypeFixedSizeList = 16,
  kTypeMap = 17,
  kTypeDuration = 18,
  kTypeLargeBinary = 19,
  kTypeLargeUtf8 = 20,
  kTypeLargeList = 21,
  kTypeRunEndEncoded = 22,
  kTypeBinaryView = 23,
  kTypeUtf8View = 24,
  kTypeListView = 25,
  kTypeLargeListView = 26,
};

void set(ArrowField& field, ArrowKind kind, int bits, int buffers, std::string description) {
  field.kind = kind;
  field.bits = bits;
  field.buffers = buffers;
  field.description = std::move(description);
}

void set_integer(ArrowField& field, const FlatTable& type) {
  const auto bits = type.number<int32_t>(0);
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
    throw Damaged(cat("an integer of ", bits, " bits"));
  field.is_signed = type.number<uint8_t>(1) != 0;
  set(field, ArrowKind::kInteger, bits, 2, cat(field.is_signed ? "int" : "uint", bits));
}

std::string description_of_children(const ArrowField& field, const char* name, bool named) {
  std::string inner;
  for (const ArrowField& child : field.children) {
    if (inner.size() > 200) {
      inner.append(", ...");
      break;
    }
    if (!inner.empty()) inner.append(", ");
    inner.append(named ? cat(child.name, ": ", child.description) : child.description);
  }
  return cat(name, "<", inner, ">");
}

// Type and children are there; how the field lies in a record batch follows from them.
void set_layout(ArrowField& field, uint8_t type, const FlatTable& table) {
  switch (type) {
    case kTypeNull: return set(field, ArrowKind::kNull, 0, 0, "null");
    case kTypeBool: return set(field, ArrowKind::kBool, 1, 2, "bool");
    case kTypeInt: return set_integer(field, table);
    case kTypeFloat: {
      const auto precision = table.number<int16_t>(0);
      const int bits = precision == 0 ? 16 : precision == 1 ? 32 : 64;
      return set(field, ArrowKind::kFloat, bits, 2, cat("float", bits));
    }
    case kTypeBinary: return set(field, ArrowKind::kText, 32, 3, "binary");
    case kTypeUtf8: return set(field, ArrowKind::kText, 32, 3, "string");
    case kTypeLargeBinary: return set(field, ArrowKind::kText, 64, 3, "large_binary");
    case kTypeLargeUtf8: return set(field, ArrowKind::kText, 64, 3, "large_string");
    case kTypeBinaryView:
    case kTypeUtf8View:
      field.variadic = true;
      return set(field, ArrowKind::kTextView, 0, 2,
                 type == kTypeUtf8View ? "string_view" : "binary_view");
    case kTypeList:
      return set(field, ArrowKind::kList, 32, 2, description_of_children(field, "list", false));
    case kTypeMap:
      return set(field, ArrowKind::kList, 32, 2, description_of_children(field, "map", false));
    case kTypeLargeList:
      return set(field, ArrowKind::kList, 64, 2,
                 description_of_children(field, "large_list", false));
    case kTypeFixedSizeList:
      field.list_size = table.number<int32_t>(0);
      if (field.list_size < 0) throw Damaged("a list of a negative size");
      return set(field, ArrowKind::kFixedSizeList, 0, 1,
                 description_of_children(field, cat("list[", field.list_size, "]").c_str(), false));
    case kTypeStruct:
      return set(field, ArrowKind::kStruct, 0, 1, description_of_children(field, "struct", true));
    case kTypeDecimal: return set(field, ArrowKind::kOther, 0, 2, "decimal");
    case kTypeDate: return set(field, ArrowKind::kOther, 0, 2, "date");
    case kTypeTime: return set(field, ArrowKind::kOther, 0, 2, "time");
    case kTypeTimestamp: return set(field, ArrowKind::kOther, 0, 2, "timestamp");
    case kTypeInterval: return set(field, ArrowKind::kOther, 0, 2, "interval");
    case kTypeDuration: return set(field, ArrowKind::kOther, 0, 2, "duration");
    case kTypeFixedSizeBinary: return set(field, ArrowKind::kOther, 0, 2, "fixed_size_binary");
    case kTypeUnion:  // mode 0 is sparse: types only; dense has offsets too
      return set(field, ArrowKind::kOther, 0, table.number<int16_t>(0) == 0 ? 1 : 2, "union");
    case kTypeRunEndEncoded: return set(field, ArrowKind::kOther, 0, 0, "run_end_encoded");
    case kTypeListView:
    case kTypeLargeListView: return set(field, ArrowKind::kOther, 0, 3, "list_view");
    default: return set(field, ArrowKind::kUnknown, 0, 0, cat("a type of number ", int{type}));
  }
}

void check_children(const ArrowField& field) {
  const bool is_list = field.kind == ArrowKind::kList || field.kind == ArrowKind::kFixedSizeList;
  if (is_list && field.children.size() != 1)
    throw Damaged(cat("a list of ", field.children.size(), " kinds of elements"));
}

class SchemaParser {
 public:
  ArrowField field(const FlatTable& table, int depth) {
    if (depth > kMaxDepth) throw Unsupported(cat("its types nest deeper than ", kMaxDepth));
    // An offset may lead to the same child many times, so their number does not follow from the
    // size of the message.
    if (++fields_ > kMaxFields) throw Unsupported(cat("it has more than ", kMaxFields, " fields"));
    ArrowField field;
    field.name = std::string(table.text(0));
    names_ += field.name.size();
    if (names_ > kMaxNames) throw Unsupported("the names of its fields are too long");
    const FlatVector children = table.vector(5);
    for (size_t i = 0; i < children.size(); ++i)
      field.children.push_back(this->field(children.table(i), depth + 1));
    set_layout(field, table.number<uint8_t>(2), table.needed_table(3, "type"));
    check_children(field);
    if (auto encoding = table.table(4)) set_dictionary(field, *encoding);
    return field;
  }

 private:
  static void set_dictionary(ArrowField& field, const FlatTable& encoding) {
    ArrowField values = std::move(field);
    field = ArrowField();
    field.name = values.name;
    field.dictionary = encoding.number<int64_t>(0);
    if (auto index = encoding.table(1)) {
      set_integer(field, *index);
    } else {
      set(field, ArrowKind::kInteger, 32, 2, "int32");
    }
    field.description = cat("dictionary<", values.description, ">");
    field.values.push_back(std::move(values));
  }

  static constexpr size_t kMaxNames = size_t{16} << 20;
  size_t fields_ = 0, names_ = 0;
};

bool is_integer(const ArrowField& field) {
  return !field.dictionary && (field.kind == ArrowKind::kInteger || field.kind == ArrowKind::kBool);
}

// Whether JSON can say its values.
bool is_readable(const ArrowField& field) {
  if (field.dictionary) return column_type(field) == ColumnType::kText;
  if (field.kind == ArrowKind::kOther || field.kind == ArrowKind::kUnknown) return false;
  if (field.kind == ArrowKind::kFloat && field.bits == 16) return false;
  for (const ArrowField& child : field.children)
    if (!is_readable(child)) return false;
  return true;
}

}  // namespace

std::vector<ArrowField> parse_arrow_schema(const FlatTable& schema) {
  if (schema.number<int16_t>(0) != 0)
    throw Unsupported("its numbers are big-endian; write it again on another machine");
  std::vector<ArrowField> fields;
  const FlatVector tables = schema.vector(1);
  SchemaParser parser;
  for (size_t i = 0; i < tables.size(); ++i) fields.push_back(parser.field(tables.table(i), 1));
  return fields;
}

ColumnType column_type(const ArrowField& field) {
  if (field.dictionary) {
    const ArrowField& values = field.values[0];
    const bool is_text = values.kind == ArrowKind::kText || values.kind == ArrowKind::kTextView;
    return is_text && !values.dictionary ? ColumnType::kText : ColumnType::kOther;
  }
  switch (field.kind) {
    case ArrowKind::kText:
    case ArrowKind::kTextView: return ColumnType::kText;
    case ArrowKind::kInteger:
    case ArrowKind::kBool: return ColumnType::kInteger;
    case ArrowKind::kList:
    case ArrowKind::kFixedSizeList:
      if (is_integer(field.children[0])) return ColumnType::kIntegers;
      return is_readable(field) ? ColumnType::kNested : ColumnType::kOther;
    case ArrowKind::kStruct: return is_readable(field) ? ColumnType::kNested : ColumnType::kOther;
    default: return ColumnType::kOther;
  }
}

}  // namespace tessera
