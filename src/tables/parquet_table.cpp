#include "tables/parquet_table.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tables/json_text.h"
#include "tables/parquet_leaf.h"
#include "tables/parquet_metadata.h"
#include "tables/table_error.h"

namespace tessera {
namespace {

bool is_integer(const ParquetNode& node) {
  if (!node.is_leaf()) return false;
  const bool plain = node.meaning == ParquetMeaning::kNone ||
                     node.meaning == ParquetMeaning::kSigned ||
                     node.meaning == ParquetMeaning::kUnsigned;
  return plain && (node.type == ParquetType::kBool || node.type == ParquetType::kInt32 ||
                   node.type == ParquetType::kInt64);
}

bool is_text(const ParquetNode& node) {
  return node.is_leaf() && node.type == ParquetType::kText &&
         (node.meaning == ParquetMeaning::kText || node.meaning == ParquetMeaning::kNone);
}

// Whether JSON can say its values.
bool is_readable(const ParquetNode& node) {
  for (const ParquetNode& child : node.children)
    if (!is_readable(child)) return false;
  if (!node.is_leaf() || is_integer(node) || is_text(node)) return true;
  if (node.meaning == ParquetMeaning::kNull) return true;
  return node.meaning == ParquetMeaning::kNone &&
         (node.type == ParquetType::kFloat || node.type == ParquetType::kDouble);
}

// What lies in one level of lists, null where `node` is no list.
const ParquetNode* element_of(const ParquetNode& node) {
  return node.repetition == ParquetNode::kRepeated ? &node : list_element(node);
}

ColumnType column_type(const ParquetNode& node) {
  if (node.repetition != ParquetNode::kRepeated) {
    if (is_text(node)) return ColumnType::kText;
    if (is_integer(node)) return ColumnType::kInteger;
    if (node.is_leaf()) return ColumnType::kOther;
  }
  const ParquetNode* element = element_of(node);
  if (element && is_integer(*element) && element->repetitions == 1) return ColumnType::kIntegers;
  return is_readable(node) ? ColumnType::kNested : ColumnType::kOther;
}

// Integers that the file has as unsigned. Of 64 bits only those below 2^63 fit.
int64_t integer_of(const ParquetNode& node, int64_t stored) {
  if (node.meaning != ParquetMeaning::kUnsigned) return stored;
  if (node.type == ParquetType::kInt32) return static_cast<uint32_t>(stored);
  if (stored < 0) throw Unsupported(cat(static_cast<uint64_t>(stored), " exceeds 2^63 - 1"));
  return stored;
}

// The entries of a leaf from front to back.
struct LeafCursor {
  const ParquetNode* node = nullptr;
  LeafRows rows;
  size_t entry = 0, value = 0;

  bool at_end() const { return entry >= rows.entries; }
  uint8_t definition() const {
    if (at_end()) throw Damaged("the fields of a struct differ in their number of rows");
    return rows.definitions.empty() ? 0 : rows.definitions[entry];
  }
  uint8_t repetition() const {
    return at_end() || rows.repetitions.empty() ? 0 : rows.repetitions[entry];
  }
  bool next_is_value() const { return definition() == node->definition; }
};

// Puts rows of a nested column together from the entries of its leaves, as JSON.
class JsonAssembler {
 public:
  JsonAssembler(std::vector<LeafCursor>& leaves, size_t first_leaf, std::string& out)
      : leaves_(leaves), first_leaf_(first_leaf), out_(out) {}

  void append_field(const ParquetNode& node) {
    if (node.repetition == ParquetNode::kRepeated) return append_list(node, node);
    if (node.repetition == ParquetNode::kOptional && first(node).definition() < node.definition) {
      pass(node);
      out_.append("null");
      return;
    }
    append_present(node);
  }

 private:
  LeafCursor& first(const ParquetNode& node) { return leaves_[node.first_leaf - first_leaf_]; }

  // Takes the entry that says of each leaf below that there is nothing.
  void pass(const ParquetNode& node) {
    for (size_t leaf = node.first_leaf; leaf < node.end_leaf; ++leaf) {
      LeafCursor& cursor = leaves_[leaf - first_leaf_];
      if (cursor.next_is_value())
        throw Damaged("the fields of a struct differ in where it is null");
      ++cursor.entry;
    }
  }

  void append_present(const ParquetNode& node) {
    if (out_.size() > kMaxBatchBytes)
      throw Unsupported(cat("a batch makes more than ", kMaxBatchBytes,
                            " bytes of JSON; write the file again with smaller row groups"));
    if (node.is_leaf()) return append_leaf(node);
    if (const ParquetNode* element = list_element(node))
      return append_list(node.children[0], *element);
    out_.push_back('{');
    for (const ParquetNode& child : node.children) {
      if (&child != node.children.data()) out_.push_back(',');
      append_json_string(child.name, out_);
      out_.push_back(':');
      append_field(child);
    }
    out_.push_back('}');
  }

  void append_list(const ParquetNode& repeated, const ParquetNode& element) {
    LeafCursor& cursor = first(repeated);
    if (cursor.definition() < repeated.definition) {
      pass(repeated);
      out_.append("[]");
      return;
    }
    out_.push_back('[');
    do {
      if (out_.back() != '[') out_.push_back(',');
      &element == &repeated ? append_present(repeated) : append_field(element);
      if (cursor.repetition() > repeated.repetitions)
        throw Damaged("the fields of a struct differ in their lists");
    } while (cursor.repetition() == repeated.repetitions);
    out_.push_back(']');
  }

  void append_leaf(const ParquetNode& node) {
    LeafCursor& cursor = first(node);
    if (!cursor.next_is_value() && cursor.rows.definitions.size() > 0)
      throw Damaged("the fields of a struct differ in where it is null");
    ++cursor.entry;
    const size_t i = cursor.value++;
    if (node.type == ParquetType::kText)
      return append_json_string(cursor.rows.values.text(i), out_);
    const int64_t value = cursor.rows.values.integers[i];
    switch (node.type) {
      case ParquetType::kBool: out_.append(value ? "true" : "false"); return;
      case ParquetType::kFloat:
        return append_json_number(std::bit_cast<float>(static_cast<uint32_t>(value)), out_);
      case ParquetType::kDouble: return append_json_number(std::bit_cast<double>(value), out_);
      default: break;
    }
    if (node.meaning == ParquetMeaning::kUnsigned && node.type == ParquetType::kInt64)
      return detail::append(out_, static_cast<uint64_t>(value));
    detail::append(out_, integer_of(node, value));
  }

  std::vector<LeafCursor>& leaves_;
  size_t first_leaf_;
  std::string& out_;
};

class ParquetTable : public TableReader {
 public:
  explicit ParquetTable(std::shared_ptr<const ByteSource> source) : TableReader(std::move(source)) {
    read_parquet_metadata(*source_, metadata_);
    for (const ParquetNode& node : metadata_.root.children)
      columns_.push_back({node.name, column_type(node),
                          node.repetition == ParquetNode::kRepeated
                              ? cat("list<", node.description, ">")
                              : node.description});
    for (const ParquetRowGroup& group : metadata_.row_groups)
      batches_.add_group(group.rows, group.bytes);
    leaves_.resize(metadata_.leaves.size());
    spare_.resize(metadata_.leaves.size());
  }

 protected:
  int64_t first_page_bytes(size_t column) const override {
    if (metadata_.row_groups.empty()) return 0;
    const ParquetNode& node = metadata_.root.children[column];
    int64_t bytes = 0;
    for (size_t leaf = node.first_leaf; leaf < node.end_leaf; ++leaf)
      bytes += ParquetLeaf(*source_, *metadata_.leaves[leaf], metadata_.row_groups[0].chunks[leaf])
                   .first_page_bytes();
    return bytes;
  }
  void read_column(const TableBatches::Part& part, size_t column, ColumnValues& out) override {
    if (part.group != group_) {
      for (auto& leaf : leaves_) leaf.reset();
      group_ = part.group;
    }
    const ParquetNode& node = metadata_.root.children[column];
    std::vector<LeafCursor> cursors(node.end_leaf - node.first_leaf);
    for (size_t i = 0; i < cursors.size(); ++i) {
      cursors[i].node = metadata_.leaves[node.first_leaf + i];
      cursors[i].rows = std::move(spare_[node.first_leaf + i]);
      cursors[i].rows.clear();
      read_leaf(part, node.first_leaf + i, cursors[i].rows);
    }
    switch (columns_[column].type) {
      case ColumnType::kText:
      case ColumnType::kInteger: take_flat(node, cursors[0].rows, out); break;
      case ColumnType::kIntegers: take_lists(node, cursors[0], out); break;
      default: take_json(node, cursors, part.rows, out); break;
    }
    for (size_t i = 0; i < cursors.size(); ++i)
      spare_[node.first_leaf + i] = std::move(cursors[i].rows);
  }

 private:
  void read_leaf(const TableBatches::Part& part, size_t leaf, LeafRows& out) {
    std::unique_ptr<ParquetLeaf>& reader = leaves_[leaf];
    // After an error its place is not known: it is made again.
    std::unique_ptr<ParquetLeaf> current = std::move(reader);
    if (!current || current->row() > part.first_row)
      current = std::make_unique<ParquetLeaf>(*source_, *metadata_.leaves[leaf],
                                              metadata_.row_groups[group_].chunks[leaf]);
    current->skip(part.first_row - current->row());
    current->read(part.rows, out);
    reader = std::move(current);
  }

  static void take_flat(const ParquetNode& node, LeafRows& rows, ColumnValues& out) {
    const bool text = node.type == ParquetType::kText;
    if (!text)
      for (int64_t& value : rows.values.integers) value = integer_of(node, value);
    const size_t values = text ? rows.values.texts() : rows.values.integers.size();
    out.bytes.swap(rows.values.bytes);
    if (values == rows.entries) {
      text ? out.offsets.swap(rows.values.offsets) : out.integers.swap(rows.values.integers);
      return;
    }
    out.valid.resize(rows.entries);
    if (text) out.offsets.assign(1, 0);
    for (size_t i = 0, value = 0; i < rows.entries; ++i) {
      const bool valid = rows.definitions[i] == node.definition;
      out.valid[i] = valid ? 1 : 0;
      value += valid ? 1 : 0;
      if (text) {
        out.offsets.push_back(rows.values.offsets[value]);
      } else {
        out.integers.push_back(valid ? rows.values.integers[value - 1] : 0);
      }
    }
  }

  static void take_lists(const ParquetNode& node, LeafCursor& leaf, ColumnValues& out) {
    LeafRows& rows = leaf.rows;
    // An entry below this level is a null row, below the next one an empty list; what is there but
    // short of the leaf's own level is a null inside a list.
    const uint8_t list = node.repetition == ParquetNode::kRepeated ? 0 : node.definition;
    const ParquetNode& repeated =
        node.repetition == ParquetNode::kRepeated ? node : node.children[0];
    bool any_null = false;
    if (rows.values.integers.size() == rows.entries) {  // neither nulls nor empty lists
      for (size_t i = 0; i < rows.entries; ++i)
        if (rows.repetitions[i] == 0) out.offsets.push_back(static_cast<int64_t>(i));
      return take_elements(leaf, out);
    }
    for (size_t i = 0, values = 0; i < rows.entries; ++i) {
      const uint8_t definition = rows.definitions[i];
      if (rows.repetitions[i] == 0) {
        out.offsets.push_back(static_cast<int64_t>(values));
        out.valid.push_back(definition < list ? 0 : 1);
        any_null = any_null || definition < list;
      } else if (std::min(definition, rows.definitions[i - 1]) < repeated.definition) {
        throw Damaged("a list that is empty or null goes on");
      }
      if (definition == leaf.node->definition) {
        ++values;
      } else if (definition >= repeated.definition) {
        throw Unsupported("there is a null inside a list of integers");
      }
    }
    if (!any_null) out.valid.clear();
    take_elements(leaf, out);
  }

  static void take_elements(LeafCursor& leaf, ColumnValues& out) {
    out.integers.swap(leaf.rows.values.integers);
    out.offsets.push_back(static_cast<int64_t>(out.integers.size()));
    if (leaf.node->meaning == ParquetMeaning::kUnsigned)
      for (int64_t& value : out.integers) value = integer_of(*leaf.node, value);
  }

  static void take_json(const ParquetNode& node, std::vector<LeafCursor>& cursors, int64_t rows,
                        ColumnValues& out) {
    JsonAssembler assembler(cursors, node.first_leaf, out.bytes);
    out.offsets.assign(1, 0);
    bool any_null = false;
    for (int64_t row = 0; row < rows; ++row) {
      const bool is_null =
          node.repetition == ParquetNode::kOptional && cursors[0].definition() < node.definition;
      const size_t begin = out.bytes.size();
      assembler.append_field(node);
      if (is_null) out.bytes.resize(begin);
      out.valid.push_back(is_null ? 0 : 1);
      any_null = any_null || is_null;
      out.offsets.push_back(static_cast<int64_t>(out.bytes.size()));
      for (const LeafCursor& cursor : cursors)
        if (cursor.repetition() != 0) throw Damaged("the fields of a struct differ in their lists");
    }
    if (!any_null) out.valid.clear();
  }

  ParquetMetadata metadata_;
  std::vector<std::unique_ptr<ParquetLeaf>> leaves_;  // those that were read of the row group
  std::vector<LeafRows> spare_;                       // memory of the batch before, of each leaf
  size_t group_ = 0;
};

}  // namespace

std::unique_ptr<TableReader> open_parquet(std::shared_ptr<const ByteSource> source) {
  return std::make_unique<ParquetTable>(std::move(source));
}

}  // namespace tessera
