#include "tables/arrow_table.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "tables/arrow_arrays.h"
#include "tables/json_text.h"
#include "tables/table_error.h"

namespace tessera {
namespace {

struct Dictionary {
  size_t group = 0;              // the record batch for which this was last looked up
  std::vector<size_t> messages;  // of which it was made
  ArrowArray texts;
};

// The row of a dictionary-encoded array: an index of its dictionary, nothing where it is null.
std::optional<size_t> dictionary_row(const ArrowArray& array, const ArrowArray& texts, int64_t i) {
  if (array.is_null(i)) return std::nullopt;
  const int64_t index = array.integers[static_cast<size_t>(i)];
  if (index < 0 || index >= texts.length)
    throw Damaged(cat("index ", index, " into a dictionary of ", texts.length));
  if (texts.is_null(index)) return std::nullopt;
  return static_cast<size_t>(index);
}

std::string_view text_of(const ArrowArray& array, size_t i) {
  const auto begin = static_cast<size_t>(array.offsets[i]);
  return std::string_view(array.bytes)
      .substr(begin, static_cast<size_t>(array.offsets[i + 1]) - begin);
}

int64_t list_begin(const ArrowField& field, const ArrowArray& array, int64_t i) {
  return field.kind == ArrowKind::kList ? array.offsets[static_cast<size_t>(i)]
                                        : i * field.list_size;
}

void check_json(const std::string& out) {
  if (out.size() > kMaxBatchBytes)
    throw Unsupported(cat("a batch makes more than ", kMaxBatchBytes,
                          " bytes of JSON; write the file again with fewer rows a batch"));
}

class ArrowTable : public TableReader {
 public:
  ArrowTable(std::shared_ptr<const ByteSource> source, TableForm form)
      : TableReader(std::move(source)), messages_(find_arrow_messages(*source_, form)) {
    for (const ArrowField& field : messages_.fields)
      columns_.push_back({field.name, column_type(field), field.description});
    batches_ = messages_.parts;
  }

 protected:
  void read_column(const TableBatches::Part& part, size_t column, ColumnValues& out) override {
    open_record_batch(part.group);
    const ArrowField& field = messages_.fields[column];
    // The memory of the batch before is used again.
    ArrowArray array;
    array.bytes.swap(out.bytes);
    array.offsets.swap(out.offsets);
    const bool lists = columns_[column].type == ColumnType::kIntegers;
    (lists ? array.children.emplace_back() : array).integers.swap(out.integers);
    batch_->load(messages_.fields, column, part.first_row, part.rows, array);
    switch (columns_[column].type) {
      case ColumnType::kText: return take_text(field, array, out);
      case ColumnType::kInteger:
        out.valid = std::move(array.valid);
        out.integers = std::move(array.integers);
        clear_null_integers(out);
        return check_unsigned(field, out);
      case ColumnType::kIntegers: return take_lists(field, array, out);
      case ColumnType::kNested: return take_json(field, array, out);
      case ColumnType::kOther: break;
    }
    TESSERA_CHECK(false, "a column that is not read");
  }

 private:
  void open_record_batch(size_t group) {
    if (batch_ && group == group_) return;
    batch_.reset();
    const ArrowMessage& message = messages_.record_batches[group];
    const FlatTable table = read_arrow_description(*source_, message, description_);
    batch_.emplace(*source_, message, table.needed_table(kMessageHeader, "header"));
    group_ = group;
  }

  void take_text(const ArrowField& field, ArrowArray& array, ColumnValues& out) {
    if (field.dictionary) return take_dictionary_text(field, array, out);
    const bool packed = array.valid.empty();
    out.valid = std::move(array.valid);
    if (packed) {
      out.offsets = std::move(array.offsets);
      out.bytes = std::move(array.bytes);
      return;
    }
    out.offsets.assign(1, 0);
    for (size_t i = 0; i < out.valid.size(); ++i) {
      if (out.valid[i]) out.bytes.append(text_of(array, i));
      out.offsets.push_back(static_cast<int64_t>(out.bytes.size()));
    }
  }

  void take_dictionary_text(const ArrowField& field, const ArrowArray& array, ColumnValues& out) {
    const ArrowArray& texts = dictionary(field);
    out.offsets.assign(1, 0);
    out.valid.assign(static_cast<size_t>(array.length), 1);
    for (int64_t i = 0; i < array.length; ++i) {
      if (auto row = dictionary_row(array, texts, i)) {
        out.bytes.append(text_of(texts, *row));
        check_json(out.bytes);
      } else {
        out.valid[static_cast<size_t>(i)] = 0;
      }
      out.offsets.push_back(static_cast<int64_t>(out.bytes.size()));
    }
    if (std::find(out.valid.begin(), out.valid.end(), 0) == out.valid.end()) out.valid.clear();
  }

  static void clear_null_integers(ColumnValues& out) {
    for (size_t i = 0; i < out.valid.size(); ++i)
      if (out.valid[i] == 0) out.integers[i] = 0;
  }

  static void check_unsigned(const ArrowField& field, const ColumnValues& out) {
    if (field.is_signed || field.bits != 64) return;
    for (int64_t value : out.integers)
      if (value < 0) throw Unsupported(cat(static_cast<uint64_t>(value), " exceeds 2^63 - 1"));
  }

  static void take_lists(const ArrowField& field, ArrowArray& array, ColumnValues& out) {
    ArrowArray& elements = array.children[0];
    const bool no_nulls = array.valid.empty() && elements.valid.empty();
    out.valid = std::move(array.valid);
    if (no_nulls && field.kind == ArrowKind::kList) {
      out.offsets = std::move(array.offsets);
      out.integers = std::move(elements.integers);
      return check_unsigned(field.children[0], out);
    }
    out.offsets.assign(1, 0);
    for (int64_t i = 0; i < array.length; ++i) {
      if (!out.is_null(static_cast<size_t>(i))) {
        const int64_t begin = list_begin(field, array, i), end = list_begin(field, array, i + 1);
        for (int64_t j = begin; j < end && !elements.valid.empty(); ++j)
          if (elements.is_null(j)) throw Unsupported("there is a null inside a list of integers");
        out.integers.insert(out.integers.end(), elements.integers.begin() + begin,
                            elements.integers.begin() + end);
      }
      out.offsets.push_back(static_cast<int64_t>(out.integers.size()));
    }
    check_unsigned(field.children[0], out);
  }

  void take_json(const ArrowField& field, const ArrowArray& array, ColumnValues& out) {
    out.offsets.assign(1, 0);
    for (int64_t i = 0; i < array.length; ++i) {
      if (!array.is_null(i)) append_json(field, array, i, out.bytes);
      out.offsets.push_back(static_cast<int64_t>(out.bytes.size()));
    }
    out.valid = array.valid;
  }

  void append_json(const ArrowField& field, const ArrowArray& array, int64_t i, std::string& out) {
    check_json(out);
    if (field.kind == ArrowKind::kNull || array.is_null(i)) {
      out.append("null");
      return;
    }
    if (field.dictionary) {
      const ArrowArray& texts = dictionary(field);
      auto row = dictionary_row(array, texts, i);
      return row ? append_json_string(text_of(texts, *row), out) : void(out.append("null"));
    }
    const auto at = static_cast<size_t>(i);
    switch (field.kind) {
      case ArrowKind::kText:
      case ArrowKind::kTextView: return append_json_string(text_of(array, at), out);
      case ArrowKind::kBool: out.append(array.integers[at] ? "true" : "false"); return;
      case ArrowKind::kInteger:
        if (field.is_signed) return detail::append(out, array.integers[at]);
        return detail::append(out, static_cast<uint64_t>(array.integers[at]));
      case ArrowKind::kFloat:
        if (field.bits == 64)
          return append_json_number(std::bit_cast<double>(array.integers[at]), out);
        return append_json_number(std::bit_cast<float>(static_cast<uint32_t>(array.integers[at])),
                                  out);
      case ArrowKind::kStruct: return append_struct(field, array, i, out);
      default: return append_list(field, array, i, out);
    }
  }

  void append_list(const ArrowField& field, const ArrowArray& array, int64_t i, std::string& out) {
    const int64_t begin = list_begin(field, array, i), end = list_begin(field, array, i + 1);
    out.push_back('[');
    for (int64_t j = begin; j < end; ++j) {
      if (j > begin) out.push_back(',');
      append_json(field.children[0], array.children[0], j, out);
    }
    out.push_back(']');
  }

  void append_struct(const ArrowField& field, const ArrowArray& array, int64_t i,
                     std::string& out) {
    out.push_back('{');
    for (size_t child = 0; child < field.children.size(); ++child) {
      if (child > 0) out.push_back(',');
      append_json_string(field.children[child].name, out);
      out.push_back(':');
      append_json(field.children[child], array.children[child], i, out);
    }
    out.push_back('}');
  }

  // The texts of a dictionary as they are at the record batch that is open: the last that replaced
  // what was before, and all that were added to it.
  const ArrowArray& dictionary(const ArrowField& field) {
    const int64_t id = *field.dictionary;
    auto known = dictionaries_.find(id);
    if (known != dictionaries_.end() && known->second.group == group_) return known->second.texts;
    std::vector<size_t> messages;
    for (size_t i = 0; i < messages_.dictionaries.size(); ++i) {
      const ArrowDictionary& dictionary = messages_.dictionaries[i];
      if (dictionary.id != id || dictionary.batches_before > group_) continue;
      if (!dictionary.is_delta) messages.clear();
      messages.push_back(i);
    }
    if (messages.empty()) throw Damaged("its dictionary is not there");
    if (known == dictionaries_.end() || known->second.messages != messages) {
      Dictionary made{group_, messages, {}};
      made.texts.offsets.assign(1, 0);
      for (size_t message : messages) add_texts(field, message, made.texts);
      known = dictionaries_.insert_or_assign(id, std::move(made)).first;
    }
    known->second.group = group_;
    return known->second.texts;
  }

  void add_texts(const ArrowField& field, size_t message, ArrowArray& out) {
    ByteBuffer bytes;
    const ArrowMessage& place = messages_.dictionaries[message].message;
    const FlatTable table = read_arrow_description(*source_, place, bytes);
    RecordBatch batch(
        *source_, place,
        table.needed_table(kMessageHeader, "header").needed_table(kDictionaryData, "dictionary"));
    if (batch.rows() < 0) throw Damaged("a dictionary of negative length");
    ArrowArray more;
    batch.load(field.values, 0, 0, batch.rows(), more);
    if (!more.valid.empty() || !out.valid.empty()) {
      out.valid.resize(static_cast<size_t>(out.length), 1);
      for (int64_t i = 0; i < more.length; ++i) out.valid.push_back(more.is_null(i) ? 0 : 1);
    }
    for (int64_t i = 0; i < more.length; ++i)
      out.offsets.push_back(static_cast<int64_t>(out.bytes.size()) +
                            more.offsets[static_cast<size_t>(i) + 1]);
    out.bytes.append(more.bytes);
    out.length += more.length;
    check_json(out.bytes);
  }

  ArrowMessages messages_;
  ByteBuffer description_;  // of the record batch that is open
  std::optional<RecordBatch> batch_;
  size_t group_ = 0;
  std::unordered_map<int64_t, Dictionary> dictionaries_;  // by id
};

}  // namespace

std::unique_ptr<TableReader> open_arrow(std::shared_ptr<const ByteSource> source, TableForm form) {
  return std::make_unique<ArrowTable>(std::move(source), form);
}

}  // namespace tessera
