#include "tables/parquet_metadata.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/text.h"
#include "tables/byte_buffer.h"
#include "tables/flatbuffer.h"
#include "tables/table_error.h"
#include "tables/thrift_compact.h"

namespace tessera {
namespace {

using Type = ThriftReader::Type;

constexpr uint64_t kMaxFooter = uint64_t{64} << 20;
constexpr size_t kMaxNodes = 100'000;
constexpr int kMaxDepth = 64;

// Numbers of fields stand in parquet.thrift
// (https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift).

struct SchemaElement {
  std::string name;
  int64_t type = -1, repetition = 0, children = 0, converted = -1;
  ParquetMeaning logical = ParquetMeaning::kNone;
  const char* other = nullptr;  // the name of a meaning that is kOther
  bool has_logical = false;
};

// The union LogicalType: one field, a struct.
void read_logical_type(ThriftReader& in, SchemaElement& out) {
  in.read_struct([&](int64_t number, Type type) {
    out.has_logical = true;
    out.logical = ParquetMeaning::kOther;
    switch (number) {
      case 1:
      case 4:
      case 12:
      case 13: out.logical = ParquetMeaning::kText; break;
      case 2: out.logical = ParquetMeaning::kMap; break;
      case 3: out.logical = ParquetMeaning::kList; break;
      case 5: out.other = "decimal"; break;
      case 6: out.other = "date"; break;
      case 7: out.other = "time"; break;
      case 8: out.other = "timestamp"; break;
      case 10:
        out.logical = ParquetMeaning::kUnsigned;
        if (type != ThriftReader::kStruct) return false;
        in.read_struct([&](int64_t field, Type t) {
          if (field == 2 && ThriftReader::truth(t)) out.logical = ParquetMeaning::kSigned;
          return false;
        });
        return true;
      case 11: out.logical = ParquetMeaning::kNull; break;
      case 14: out.other = "uuid"; break;
      case 15: out.other = "float16"; break;
      default: out.other = "a type of a newer version"; break;
    }
    return false;
  });
}

SchemaElement read_schema_element(ThriftReader& in) {
  SchemaElement out;
  in.read_struct([&](int64_t number, Type type) {
    switch (number) {
      case 1: out.type = in.integer(type); return true;
      case 3: out.repetition = in.integer(type); return true;
      case 4: out.name = std::string(in.binary(type)); return true;
      case 5: out.children = in.integer(type); return true;
      case 6: out.converted = in.integer(type); return true;
      case 10:
        if (type != ThriftReader::kStruct) return false;
        read_logical_type(in, out);
        return true;
      default: return false;
    }
  });
  return out;
}

// The older annotation, where there is no LogicalType.
ParquetMeaning meaning_of(SchemaElement& element) {
  if (element.has_logical) return element.logical;
  switch (element.converted) {
    case -1: return ParquetMeaning::kNone;
    case 0:
    case 4:
    case 19:
    case 20: return ParquetMeaning::kText;
    case 1:
    case 2: return ParquetMeaning::kMap;
    case 3: return ParquetMeaning::kList;
    case 11:
    case 12:
    case 13:
    case 14: return ParquetMeaning::kUnsigned;
    case 15:
    case 16:
    case 17:
    case 18: return ParquetMeaning::kSigned;
    default: break;
  }
  constexpr std::array kNames = {"decimal", "date", "time", "time", "timestamp", "timestamp"};
  const int64_t name = element.converted - 5;
  element.other = name >= 0 && name < 6 ? kNames[static_cast<size_t>(name)] : "interval";
  return ParquetMeaning::kOther;
}

std::string describe_leaf(const ParquetNode& node, const SchemaElement& element) {
  if (node.meaning == ParquetMeaning::kOther) return element.other ? element.other : "unknown";
  if (node.meaning == ParquetMeaning::kNull) return "null";
  const bool is_unsigned = node.meaning == ParquetMeaning::kUnsigned;
  switch (node.type) {
    case ParquetType::kBool: return "bool";
    case ParquetType::kInt32: return is_unsigned ? "uint32" : "int32";
    case ParquetType::kInt64: return is_unsigned ? "uint64" : "int64";
    case ParquetType::kInt96: return "int96";
    case ParquetType::kFloat: return "float";
    case ParquetType::kDouble: return "double";
    case ParquetType::kText: return node.meaning == ParquetMeaning::kText ? "string" : "binary";
    case ParquetType::kFixedText: return "fixed_len_byte_array";
  }
  return "unknown";
}

std::string describe_group(const ParquetNode& node) {
  if (const ParquetNode* element = list_element(node))
    return cat("list<", element->description, ">");
  std::string inner;
  for (const ParquetNode& child : node.children) {
    if (inner.size() > 200) {
      inner.append(", ...");
      break;
    }
    if (!inner.empty()) inner.append(", ");
    inner.append(cat(child.name, ": ", child.description));
  }
  return cat("struct<", inner, ">");
}

// The file has the tree as a list, depth first.
class TreeBuilder {
 public:
  explicit TreeBuilder(std::vector<SchemaElement> elements) : elements_(std::move(elements)) {}

  ParquetNode build() {
    ParquetNode root = node(0, 0, 0, true);
    if (next_ != elements_.size()) throw Damaged("its schema has elements that belong nowhere");
    return root;
  }

 private:
  ParquetNode node(int depth, int definition, int repetitions, bool is_root) {
    if (depth > kMaxDepth) throw Unsupported(cat("its types nest deeper than ", kMaxDepth));
    if (next_ >= elements_.size()) throw Damaged("its schema has fewer elements than it says");
    SchemaElement& element = elements_[next_++];
    ParquetNode out;
    out.name = element.name;
    if (!is_root) {
      if (element.repetition < 0 || element.repetition > 2)
        throw Damaged(cat("field '", out.name, "' has the repetition ", element.repetition));
      out.repetition = static_cast<ParquetNode::Repetition>(element.repetition);
    }
    definition += out.repetition != ParquetNode::kRequired;
    repetitions += out.repetition == ParquetNode::kRepeated;
    out.definition = static_cast<uint8_t>(definition);
    out.repetitions = static_cast<uint8_t>(repetitions);
    out.meaning = meaning_of(element);
    out.first_leaf = leaves_;
    if (element.children == 0 && !is_root) {
      if (element.type < 0 || element.type > 7)
        throw Damaged(cat("field '", out.name, "' has neither a type nor fields of its own"));
      out.type = static_cast<ParquetType>(element.type);
      out.description = describe_leaf(out, element);
      ++leaves_;
    } else {
      if (element.children < 0 || element.children > static_cast<int64_t>(elements_.size()))
        throw Damaged(cat("field '", out.name, "' claims ", element.children, " fields"));
      for (int64_t i = 0; i < element.children; ++i)
        out.children.push_back(node(depth + 1, definition, repetitions, false));
      out.description = describe_group(out);
    }
    out.end_leaf = leaves_;
    return out;
  }

  std::vector<SchemaElement> elements_;
  size_t next_ = 0, leaves_ = 0;
};

void read_column_metadata(ThriftReader& in, ParquetChunk& out) {
  int64_t dictionary = 0, data = 0;
  in.read_struct([&](int64_t number, Type type) {
    switch (number) {
      case 4:
        out.codec = static_cast<int8_t>(std::clamp<int64_t>(in.integer(type), -1, 127));
        return true;
      case 5: out.values = in.integer(type); return true;
      case 7: out.bytes = in.integer(type); return true;
      case 9: data = in.integer(type); return true;
      case 11: dictionary = in.integer(type); return true;
      default: return false;
    }
  });
  // Some writers give 0 where there is no dictionary.
  out.first_page = dictionary > 0 ? std::min(dictionary, data) : data;
}

ParquetChunk read_chunk(ThriftReader& in) {
  ParquetChunk out;
  bool described = false;
  in.read_struct([&](int64_t number, Type type) {
    if (number == 1) out.elsewhere = true;
    if (number == 8 || number == 9) out.encrypted = true;
    if (number != 3 || type != ThriftReader::kStruct) return false;
    read_column_metadata(in, out);
    described = true;
    return true;
  });
  if (!described && !out.encrypted) throw Damaged("a row group does not describe a column");
  return out;
}

ParquetRowGroup read_row_group(ThriftReader& in) {
  ParquetRowGroup out;
  in.read_struct([&](int64_t number, Type type) {
    switch (number) {
      case 1: in.read_list(type, [&](Type) { out.chunks.push_back(read_chunk(in)); }); return true;
      case 2: out.bytes = in.integer(type); return true;
      case 3: out.rows = in.integer(type); return true;
      default: return false;
    }
  });
  return out;
}

void collect_leaves(const ParquetNode& node, std::vector<const ParquetNode*>& out) {
  if (node.is_leaf()) {
    out.push_back(&node);
    return;
  }
  for (const ParquetNode& child : node.children) collect_leaves(child, out);
}

void parse_footer(std::span<const std::byte> bytes, ParquetMetadata& out) {
  ThriftReader in(bytes);
  std::vector<SchemaElement> elements;
  in.read_struct([&](int64_t number, Type type) {
    switch (number) {
      case 2:
        in.read_list(type, [&](Type) {
          if (elements.size() >= kMaxNodes)
            throw Unsupported(cat("its schema has more than ", kMaxNodes, " elements"));
          elements.push_back(read_schema_element(in));
        });
        return true;
      case 4:
        in.read_list(type, [&](Type) { out.row_groups.push_back(read_row_group(in)); });
        return true;
      default: return false;
    }
  });
  out.root = TreeBuilder(std::move(elements)).build();
  collect_leaves(out.root, out.leaves);
  if (out.root.is_leaf()) out.leaves.clear();  // a table without columns
  for (size_t i = 0; i < out.row_groups.size(); ++i)
    if (out.row_groups[i].chunks.size() != out.leaves.size())
      throw Damaged(cat("row group ", i, " has ", out.row_groups[i].chunks.size(),
                        " columns, the schema has ", out.leaves.size()));
}

}  // namespace

// The rules for files of older writers are those of parquet-format's LogicalTypes.md.
const ParquetNode* list_element(const ParquetNode& node) {
  if (node.meaning != ParquetMeaning::kList && node.meaning != ParquetMeaning::kMap) return nullptr;
  if (node.children.size() != 1) return nullptr;
  const ParquetNode& repeated = node.children[0];
  if (repeated.repetition != ParquetNode::kRepeated) return nullptr;
  if (repeated.children.size() != 1 || repeated.name == "array" ||
      repeated.name == node.name + "_tuple" ||
      repeated.children[0].repetition == ParquetNode::kRepeated)
    return &repeated;
  return &repeated.children[0];
}

void read_parquet_metadata(const ByteSource& source, ParquetMetadata& out) {
  const uint64_t size = source.size();
  std::array<std::byte, 8> tail{};
  if (size < 4 + tail.size()) throw Damaged("it is too short");
  source.read(size - tail.size(), tail);
  FlatBytes view(tail);
  if (view.text(4, 4) != "PAR1") throw Damaged("it does not end as a Parquet file does");
  const auto length = view.load<uint32_t>(0);
  if (length > size - 4 - tail.size() || length > kMaxFooter)
    throw Damaged(cat("it claims a footer of ", length, " bytes"));
  ByteBuffer footer;
  footer.resize(length);
  source.read(size - tail.size() - length, footer.bytes());
  parse_footer(footer.bytes(), out);
}

size_t parse_parquet_page(std::span<const std::byte> bytes, ParquetPage& out) {
  ThriftReader in(bytes);
  out = {};
  auto data = [&](int64_t number, Type type) {
    switch (number) {
      case 1: out.values = in.integer(type); return true;
      case 2: out.encoding = static_cast<int>(in.integer(type)); return true;
      case 3: out.definition_encoding = static_cast<int>(in.integer(type)); return true;
      case 4: out.repetition_encoding = static_cast<int>(in.integer(type)); return true;
      default: return false;
    }
  };
  auto dictionary = [&](int64_t number, Type type) {
    switch (number) {
      case 1: out.values = in.integer(type); return true;
      case 2: out.encoding = static_cast<int>(in.integer(type)); return true;
      default: return false;
    }
  };
  auto data_v2 = [&](int64_t number, Type type) {
    switch (number) {
      case 1: out.values = in.integer(type); return true;
      case 3: out.rows = in.integer(type); return true;
      case 4: out.encoding = static_cast<int>(in.integer(type)); return true;
      case 5: out.definition_bytes = in.integer(type); return true;
      case 6: out.repetition_bytes = in.integer(type); return true;
      case 7: out.packed = ThriftReader::truth(type); return true;
      default: return false;
    }
  };
  in.read_struct([&](int64_t number, Type type) {
    switch (number) {
      case 1: out.kind = static_cast<int>(in.integer(type)); return true;
      case 2: out.raw_bytes = in.integer(type); return true;
      case 3: out.bytes = in.integer(type); return true;
      case 4: out.crc = static_cast<uint32_t>(in.integer(type)); return true;
      default: break;
    }
    if (type != ThriftReader::kStruct || (number != 5 && number != 7 && number != 8)) return false;
    if (number == 5) in.read_struct(data);
    if (number == 7) in.read_struct(dictionary);
    if (number == 8) in.read_struct(data_v2);
    return true;
  });
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  for (int64_t n :
       {out.raw_bytes, out.bytes, out.values, out.definition_bytes, out.repetition_bytes})
    if (n < 0 || n > kMax) throw Damaged(cat("a page header holds the number ", n));
  return in.position();
}

}  // namespace tessera
