#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// One message of a conversation. `role` is "system", "user" or "assistant" in most data; what a
// chat template makes of others is up to it (chat_template.h).
struct Message {
  std::string role, content;
  bool learn = true;  // if it is an answer
  bool operator==(const Message&) const = default;
};

// A piece of text, and whether a model is trained to write it.
struct TextSpan {
  std::string text;
  bool learn = false;
  bool markup = false;  // from a chat template, not from the data
  bool operator==(const TextSpan&) const = default;
};

// One row of a data set: one of these, by the form of the data.
struct Record {
  std::string text;               // a document, UTF-8 or any bytes
  std::vector<int32_t> ids;       // tokens ...
  std::vector<int32_t> labels;    // ... as many, for each the id itself or kIgnoreIndex; or empty
  std::vector<Message> messages;  // a conversation
  std::vector<TextSpan> spans;    // text of which parts are learned: a prompt and its completion

  bool empty() const { return text.empty() && ids.empty() && messages.empty() && spans.empty(); }
  // Of text, ids and labels.
  size_t bytes() const {
    size_t sum = text.size() + (ids.size() + labels.size()) * sizeof(int32_t);
    for (const Message& message : messages) sum += message.content.size();
    for (const TextSpan& span : spans) sum += span.text.size();
    return sum;
  }
  // Keeps the memory.
  void clear() {
    text.clear();
    ids.clear();
    labels.clear();
    messages.clear();
    spans.clear();
  }
};

// Reads the records of a source in order; of any format.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  // The next record that holds something, over what `record` had; false after the last.
  virtual bool next(Record& record) = 0;
  // Where next() is: bytes that make seek() of a reader over the same source go on with the same
  // record, at once. They are checked when they are used, and may take some 33 KiB.
  virtual std::string position() const = 0;
  // UserError where the position is damaged, or does not fit the source.
  virtual void seek(std::string_view position) = 0;
  // Bytes of the source as it is stored: passed so far, and all.
  virtual int64_t bytes_read() const = 0;
  virtual int64_t bytes_total() const = 0;
  // Records left out because they are broken, where the reader was told to.
  virtual int64_t bad_records() const = 0;
};

}  // namespace tessera
