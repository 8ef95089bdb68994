#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "data/record_reader.h"

namespace tessera {

// What records hold.
enum class RecordKind {
  kText,  // documents
  kIds,   // tokens, a row each
  kChat,  // conversations, or prompts with completions
};

// What the rows of a text file are.
enum class RecordForm {
  kPlainText,  // documents between lines `<|endoftext|>`
  kJsonText,   // JSON lines with a string of text
  kJsonIds,    // JSON lines with "input_ids"
  kJsonChat,   // JSON lines with "messages", or "prompt" and "completion"
};

// A longer line of a JSON-lines file, or a longer document in one piece, is an error: what is read
// stays bounded for any input, a small packed file that unpacks to terabytes included.
constexpr int64_t kMaxJsonLineBytes = int64_t{64} << 20;
constexpr int64_t kMaxDocumentBytes = int64_t{2} << 30;
// What one long line or document took is given back behind it, so that of many readers not each
// keeps it.
constexpr size_t kKeptBytes = size_t{1} << 20;

struct RecordOptions {
  std::string text_field = "text";  // of kJsonText: the key of the text
  // Ids are below it; 0: any that is not negative.
  int64_t vocab_size = 0;
  // JSON lines: a broken line is counted, warned about once and skipped instead of being an error.
  bool skip_bad_lines = false;
  // Of all readers that share it one warns; null: each does.
  std::shared_ptr<std::atomic<bool>> warned = {};
  // Plain text: a document that is longer is an error where it is read in one piece.
  int64_t longest_document = kMaxDocumentBytes;
};

// Makes records of JSON objects, one a line. Keys that a form does not know are ignored.
//
//   kJsonText  {"text": "..."}: `text`, by the key that the options name
//   kJsonIds   {"input_ids": [..], "attention_mask": [..], "labels": [..]}: `ids`, `labels`. The
//              mask is optional: zeros at its ends are padding, which is cut off, and there are no
//              others. The labels are optional: for each id the id itself or -100, not shifted.
//              Without them "completion_mask" and "assistant_masks" are looked for, as TRL writes
//              them: an id with a zero in one of them is not learned
//   kJsonChat  {"messages": [{"role": "..", "content": ".."}, ..]}: `messages`; or {"prompt": "..",
//              "completion": ".."}: `spans`, of which the completion is learned; or both of them
//              lists of messages: `messages`, the completion's after the prompt's, of which no
//              answer is learned
// Text is without zero bytes. Of messages tools, and contents that are no strings, are refused. Of
// a key that stands twice the last value counts; null under "messages" is as none.
class JsonRecordParser {
 public:
  explicit JsonRecordParser(const RecordOptions& options);
  ~JsonRecordParser();
  JsonRecordParser(const JsonRecordParser&) = delete;
  JsonRecordParser& operator=(const JsonRecordParser&) = delete;

  // Puts the record of `line` into `record`, which comes cleared. What is wrong with the line, or
  // "": it may have kMaxJsonLineBytes. Changes numbers that are too large for 64 bits, and reserves
  // some bytes behind `line`. In memory: up to 14 times the line; of one that exceeds kKeptBytes it
  // is given back.
  std::string parse(std::string& line, RecordForm form, Record& record);
  // What a line must be.
  std::string expectation(RecordForm form) const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

// Cuts off the padding at the ends of a row of ids: zeros of its mask. What is wrong with the mask,
// else "".
std::string apply_attention_mask(std::span<const int64_t> mask, Record& record);

// What says of ids without labels which are learned.
inline constexpr std::string_view kLossMasks[] = {"completion_mask", "assistant_masks"};
// Ids with a zero are not learned. What is wrong with the mask called `name`, else "".
std::string apply_loss_mask(std::string_view name, std::span<const int64_t> mask, Record& record);

// What is wrong with the labels of a row of ids: one that is neither its id nor kIgnoreIndex. ""
// where they are right, or there are none.
std::string label_problem(const Record& record);

// The form of JSON lines by the keys of one of them: `wanted_text`, which is text; "input_ids";
// "messages", or "prompt" and "completion"; else text. nullopt for a broken one.
std::optional<RecordForm> form_of_json_line(std::string line, std::string_view wanted_text = "");
// Whether a line is an object with the key of the text or one of those.
bool is_json_record(std::string line, std::string_view text_field);

}  // namespace tessera
