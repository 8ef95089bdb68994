#include "data/json_record.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/ignore_index.h"
#include "base/text.h"

namespace tessera {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

std::string zero_byte(std::string_view key) {
  return cat("\"", key, "\" holds a zero byte (\\u0000)");
}

// The value of a key, the last one as in Python; whether there is one.
bool find(const object& row, std::string_view key, element& value) {
  bool found = false;
  for (const auto field : row) {
    if (field.key != key) continue;
    value = field.value;
    found = true;
  }
  return found;
}

bool has(const object& row, std::string_view key) {
  element value;
  return find(row, key, value);
}

bool find_not_null(const object& row, std::string_view key, element& value) {
  return find(row, key, value) && !value.is_null();
}

// Whether there is something other than null and an empty list under the key.
bool has_some(const object& row, std::string_view key) {
  element value;
  array items;
  if (!find_not_null(row, key, value)) return false;
  return value.get(items) || items.size() > 0;
}

bool is_chat(const object& row) {
  element value;
  return find_not_null(row, "messages", value) || (has(row, "prompt") && has(row, "completion"));
}

// By JSON's grammar.
bool is_number(std::string_view text) {
  auto digits = [&] {
    const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count;
  };
  if (text.starts_with('-')) text.remove_prefix(1);
  const bool zero = text.starts_with('0');
  const size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(text.size() > 1 && (text[1] == '+' || text[1] == '-') ? 2 : 1);
    if (digits() == 0) return false;
  }
  return text.empty();
}

// Puts 0.5 for the numbers that may be too large for 64 bits, and {} for NaN and infinity as Python
// writes them: no form of rows has such. Whether there were any.
bool replace_unreadable_numbers(std::string& line) {
  bool found = false;
  auto replace = [&](size_t begin, size_t size, std::string_view by) {
    std::memset(line.data() + begin, ' ', size);
    by.copy(line.data() + begin, by.size());
    found = true;
  };
  for (size_t i = 0; i < line.size();) {
    if (line[i] == '"') {
      for (++i; i < line.size() && line[i] != '"'; ++i) i += line[i] == '\\';
      ++i;
      continue;
    }
    const std::string_view rest = std::string_view(line).substr(i);
    constexpr std::string_view kWords[] = {"NaN", "Infinity", "-Infinity"};
    if (auto word = std::ranges::find_if(kWords, [&](auto w) { return rest.starts_with(w); });
        word != std::end(kWords)) {
      replace(i, word->size(), "{}");
      i += word->size();
      continue;
    }
    const size_t end = std::min(line.find_first_not_of("0123456789+-.eE", i), line.size());
    const std::string_view token = rest.substr(0, end - i);
    const bool large = token.size() > 18 || token.find_first_of("eE") != std::string_view::npos;
    if (large && is_number(token)) replace(i, token.size(), "0.5");
    i = std::max(end, i + 1);
  }
  return found;
}

std::string mask_problem(std::string_view name, std::span<const int64_t> mask,
                         const Record& record) {
  if (mask.size() != record.ids.size())
    return cat(name, " has ", mask.size(), " elements, input_ids ", record.ids.size());
  const auto bad = std::ranges::find_if(mask, [](int64_t bit) { return bit < 0 || bit > 1; });
  if (bad != mask.end()) return cat(name, "[", bad - mask.begin(), "] is neither 0 nor 1");
  return "";
}

simdjson::error_code parse_line(simdjson::dom::parser& json, std::string& line, element& value) {
  line.reserve(line.size() + simdjson::SIMDJSON_PADDING);
  auto error = json.parse(line.data(), line.size(), false).get(value);
  if (!error || !replace_unreadable_numbers(line)) return error;
  return json.parse(line.data(), line.size(), false).get(value);
}

}  // namespace

struct JsonRecordParser::Parser {
  RecordOptions options;
  simdjson::dom::parser json;

  std::string read(std::string& line, RecordForm form, Record& record);
  std::string read_object(std::string& line, object& row);
  std::string read_text(const object& row, Record& record) const;
  std::string read_ids(const object& row, Record& record) const;
  std::string read_labels(const element& field, Record& record) const;
  std::string read_mask(const element& field, std::string_view name,
                        std::vector<int64_t>& mask) const;
  std::string read_chat(const object& row, Record& record) const;
  std::string read_messages(const element& field, const char* key, Record& record) const;
  int64_t end_of_ids() const {
    return options.vocab_size > 0 ? options.vocab_size
                                  : int64_t{std::numeric_limits<int32_t>::max()} + 1;
  }
};

std::string JsonRecordParser::Parser::read_object(std::string& line, object& row) {
  element value;
  if (auto error = parse_line(json, line, value)) return simdjson::error_message(error);
  if (value.get(row)) return "not an object";
  return "";
}

std::string JsonRecordParser::Parser::read_text(const object& row, Record& record) const {
  element field;
  const std::string& key = options.text_field;
  if (!find(row, key, field)) return cat("there is no key \"", key, "\"");
  std::string_view text;
  if (field.get(text)) return cat("\"", key, "\" is not a string");
  if (text.find('\0') != std::string_view::npos) return zero_byte(key);
  record.text.assign(text);
  return "";
}

std::string JsonRecordParser::Parser::read_ids(const object& row, Record& record) const {
  element field;
  array items;
  if (!find(row, "input_ids", field)) return "there is no key \"input_ids\"";
  if (field.get(items)) return "\"input_ids\" is not an array";
  for (element item : items) {
    int64_t id;
    if (item.get(id)) return cat("input_ids[", record.ids.size(), "] is not an integer");
    if (id < 0 || id >= end_of_ids()) {
      return cat("input_ids[", record.ids.size(), "] is ", id, ", ids are 0 to ", end_of_ids() - 1);
    }
    record.ids.push_back(static_cast<int32_t>(id));
  }
  std::vector<int64_t> mask;
  if (find_not_null(row, "labels", field)) {
    if (std::string problem = read_labels(field, record); !problem.empty()) return problem;
  } else {
    for (std::string_view name : kLossMasks) {
      if (!find_not_null(row, name, field)) continue;
      std::string problem = read_mask(field, name, mask);
      if (problem.empty()) problem = apply_loss_mask(name, mask, record);
      if (!problem.empty()) return problem;
    }
  }
  if (find(row, "attention_mask", field)) {
    std::string problem = read_mask(field, "attention_mask", mask);
    if (problem.empty()) problem = apply_attention_mask(mask, record);
    if (!problem.empty()) return problem;
  }
  return label_problem(record);
}

std::string JsonRecordParser::Parser::read_mask(const element& field, std::string_view name,
                                                std::vector<int64_t>& mask) const {
  array items;
  if (field.get(items)) return cat("\"", name, "\" is not an array");
  mask.clear();
  for (element item : items) {
    int64_t bit;
    if (item.get(bit)) return cat(name, "[", mask.size(), "] is neither 0 nor 1");
    mask.push_back(bit);
  }
  return "";
}

std::string JsonRecordParser::Parser::read_labels(const element& field, Record& record) const {
  array items;
  if (field.get(items)) return "\"labels\" is not an array";
  for (element item : items) {
    int64_t id;
    if (item.get(id)) return cat("labels[", record.labels.size(), "] is not an integer");
    if (id != kIgnoreIndex && (id < 0 || id >= end_of_ids())) {
      return cat("labels[", record.labels.size(), "] is ", id, ", labels are ids or ",
                 kIgnoreIndex);
    }
    record.labels.push_back(static_cast<int32_t>(id));
  }
  if (record.labels.size() != record.ids.size()) {
    return cat("\"labels\" has ", record.labels.size(), " elements, \"input_ids\" ",
               record.ids.size());
  }
  return "";
}

std::string JsonRecordParser::Parser::read_chat(const object& row, Record& record) const {
  element prompt, completion;
  const std::string tools = has_some(row, "tools") ? "\"tools\" are not supported" : std::string();
  if (find_not_null(row, "messages", prompt))
    return tools.empty() ? read_messages(prompt, "messages", record) : tools;
  if (!find(row, "prompt", prompt) || !find(row, "completion", completion)) {
    return "there is no key \"messages\", nor both \"prompt\" and \"completion\"";
  }
  if (prompt.is_array() && completion.is_array()) {
    if (!tools.empty()) return tools;
    if (std::string problem = read_messages(prompt, "prompt", record); !problem.empty())
      return problem;
    for (Message& message : record.messages) message.learn = false;
    return read_messages(completion, "completion", record);
  }
  std::string_view asked, answered;
  if (prompt.get(asked) || completion.get(answered)) {
    return "\"prompt\" and \"completion\" are neither two strings nor two arrays of messages";
  }
  if (asked.find('\0') != std::string_view::npos) return zero_byte("prompt");
  if (answered.find('\0') != std::string_view::npos) return zero_byte("completion");
  if (!asked.empty()) record.spans.push_back({std::string(asked), false});
  if (!answered.empty()) record.spans.push_back({std::string(answered), true});
  return "";
}

std::string JsonRecordParser::Parser::read_messages(const element& field, const char* key,
                                                    Record& record) const {
  array items;
  if (field.get(items)) return cat("\"", key, "\" is not an array");
  size_t number = 0;
  for (element item : items) {
    const std::string where = cat(key, "[", number++, "]");
    object message;
    std::string_view role, content;
    if (item.get(message)) return where + " is not an object";
    element value;
    if (!find(message, "role", value) || value.get(role)) return where + " has no string \"role\"";
    if (has_some(message, "tool_calls"))
      return where + " has \"tool_calls\", which are not supported";
    if (!find(message, "content", value) || value.get(content))
      return where + " has no string \"content\"";
    if (role.find('\0') != std::string_view::npos) return zero_byte(where + ".role");
    if (content.find('\0') != std::string_view::npos) return zero_byte(where + ".content");
    record.messages.push_back({std::string(role), std::string(content)});
  }
  return "";
}

JsonRecordParser::JsonRecordParser(const RecordOptions& options)
    : parser_(std::make_unique<Parser>()) {
  parser_->options = options;
}

JsonRecordParser::~JsonRecordParser() = default;

std::string JsonRecordParser::Parser::read(std::string& line, RecordForm form, Record& record) {
  object row;
  if (std::string problem = read_object(line, row); !problem.empty()) return problem;
  switch (form) {
    case RecordForm::kJsonText: return read_text(row, record);
    case RecordForm::kJsonIds: return read_ids(row, record);
    case RecordForm::kJsonChat: return read_chat(row, record);
    case RecordForm::kPlainText: break;
  }
  internal_error(__FILE__, __LINE__, "form", "plain text is not JSON");
}

std::string JsonRecordParser::parse(std::string& line, RecordForm form, Record& record) {
  if (std::ssize(line) > kMaxJsonLineBytes)
    return cat("it has ", format_bytes(std::ssize(line)), ", at most ",
               format_bytes(kMaxJsonLineBytes), " are read");
  std::string problem = parser_->read(line, form, record);
  if (line.size() > kKeptBytes) parser_->json = simdjson::dom::parser();
  return problem;
}

std::string JsonRecordParser::expectation(RecordForm form) const {
  switch (form) {
    case RecordForm::kJsonIds: return "a line must be a JSON object with an array \"input_ids\"";
    case RecordForm::kJsonChat:
      return "a line must be a JSON object with \"messages\", or with \"prompt\" and "
             "\"completion\"";
    default:
      return cat("a line must be a JSON object with a string \"", parser_->options.text_field,
                 "\"");
  }
}

std::string apply_attention_mask(std::span<const int64_t> mask, Record& record) {
  if (std::string problem = mask_problem("attention_mask", mask, record); !problem.empty())
    return problem;
  const auto first = std::ranges::find(mask, 1);
  const auto end = std::find(mask.rbegin(), mask.rend(), 1).base();
  if (first == mask.end()) {
    record.clear();
    return "";
  }
  if (const auto hole = std::find(first, end, 0); hole != end) {
    return cat("attention_mask[", hole - mask.begin(),
               "] is 0 between ids whose mask is 1: only padding at the ends can be left out; of "
               "ids that are read and not learned the labels are ",
               kIgnoreIndex);
  }
  auto keep = [&](std::vector<int32_t>& values) {
    values.resize(static_cast<size_t>(end - mask.begin()));
    values.erase(values.begin(), values.begin() + (first - mask.begin()));
  };
  keep(record.ids);
  if (!record.labels.empty()) keep(record.labels);
  return "";
}

std::string apply_loss_mask(std::string_view name, std::span<const int64_t> mask, Record& record) {
  if (std::string problem = mask_problem(name, mask, record); !problem.empty()) return problem;
  if (record.labels.empty()) record.labels = record.ids;
  for (size_t i = 0; i < mask.size(); ++i)
    if (mask[i] == 0) record.labels[i] = kIgnoreIndex;
  return "";
}

std::string label_problem(const Record& record) {
  for (size_t i = 0; i < record.labels.size(); ++i) {
    if (record.labels[i] == record.ids[i] || record.labels[i] == kIgnoreIndex) continue;
    return cat("labels[", i, "] is ", record.labels[i], " where input_ids[", i, "] is ",
               record.ids[i], ": labels are the ids themselves, not shifted, or ", kIgnoreIndex);
  }
  return "";
}

std::optional<RecordForm> form_of_json_line(std::string line, std::string_view wanted_text) {
  simdjson::dom::parser json;
  element value;
  object row;
  if (parse_line(json, line, value) || value.get(row)) return std::nullopt;
  if (!wanted_text.empty() && has(row, wanted_text)) return RecordForm::kJsonText;
  if (has(row, "input_ids")) return RecordForm::kJsonIds;
  if (is_chat(row)) return RecordForm::kJsonChat;
  return RecordForm::kJsonText;
}

bool is_json_record(std::string line, std::string_view text_field) {
  simdjson::dom::parser json;
  element value;
  object row;
  if (parse_line(json, line, value) || value.get(row)) return false;
  return has(row, text_field) || has(row, "input_ids") || has(row, "messages") ||
         has(row, "prompt");
}

}  // namespace tessera
