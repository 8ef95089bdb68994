#include "tables/arrow_messages.h"

#include <algorithm>
#include <array>

#include "base/interruption.h"
#include "base/text.h"
#include "tables/arrow_table.h"
#include "tables/table_error.h"

namespace tessera {
namespace {

constexpr uint32_t kContinuation = 0xffffffff;
constexpr uint64_t kMaxDescription = uint64_t{64} << 20;
constexpr size_t kGuess = 4096;  // a description is rarely longer
// What stands in the body may be packed: to about a quarter, for the size of a part.
constexpr int64_t kPackedRatio = 4;

enum HeaderType : uint8_t { kSchema = 1, kDictionaryBatch = 2, kRecordBatch = 3 };

// The message at a place of the source, with its description read.
class MessageReader {
 public:
  explicit MessageReader(const ByteSource& source) : source_(source), size_(source.size()) {}

  // False where the stream ends: no bytes left, or a length of 0.
  bool read(uint64_t offset) {
    check_interruption();
    if (offset >= size_) return false;
    const uint64_t there = std::min<uint64_t>(size_ - offset, kGuess);
    bytes_.resize(static_cast<size_t>(there));
    source_.read(offset, bytes_.bytes());
    FlatBytes head(bytes_.bytes());
    if (there < 4) throw Damaged(cat("it ends inside a message at byte ", offset));
    auto length = head.load<uint32_t>(0);
    uint64_t prefix = 4;
    if (length == kContinuation) {
      if (there < 8) throw Damaged(cat("it ends inside a message at byte ", offset));
      length = head.load<uint32_t>(4);
      prefix = 8;
    }
    if (length == 0) return false;
    place_ = {offset + prefix, length, offset + prefix + length, 0};
    if (length > size_ - offset - prefix || length > kMaxDescription)
      throw Damaged(
          cat("the message at byte ", offset, " claims a description of ", length, " bytes"));
    const size_t needed = static_cast<size_t>(prefix) + length;
    if (needed > there) {
      bytes_.resize(needed, static_cast<size_t>(there));
      source_.read(offset + there, bytes_.bytes().subspan(static_cast<size_t>(there)));
    }
    description_ = bytes_.bytes().subspan(static_cast<size_t>(prefix), length);
    const auto body = table().number<int64_t>(kMessageBodyLength);
    if (body < 0 || static_cast<uint64_t>(body) > size_ - place_.body)
      throw Damaged(cat("the message at byte ", offset, " claims ", body, " bytes behind it, ",
                        size_ - place_.body, " are there"));
    place_.body_bytes = static_cast<uint64_t>(body);
    return true;
  }

  FlatTable table() const { return FlatTable::root(description_); }
  uint8_t type() const { return table().number<uint8_t>(kMessageHeaderType); }
  FlatTable header() const { return table().needed_table(kMessageHeader, "header"); }
  const ArrowMessage& place() const { return place_; }
  uint64_t end() const { return place_.body + place_.body_bytes; }

 private:
  const ByteSource& source_;
  uint64_t size_;
  ByteBuffer bytes_;
  std::span<const std::byte> description_;
  ArrowMessage place_;
};

void add_record_batch(const MessageReader& message, ArrowMessages& out) {
  const FlatTable batch = message.header();
  const auto bytes = static_cast<int64_t>(message.place().body_bytes);
  out.parts.add_group(batch.number<int64_t>(kBatchLength),
                      batch.has(kBatchCompression) ? bytes * kPackedRatio : bytes);
  out.record_batches.push_back(message.place());
}

void add_dictionary(const MessageReader& message, ArrowMessages& out) {
  const FlatTable dictionary = message.header();
  out.dictionaries.push_back({message.place(), dictionary.number<int64_t>(kDictionaryId),
                              dictionary.number<uint8_t>(kDictionaryIsDelta) != 0,
                              out.record_batches.size()});
}

ArrowMessages messages_of_stream(const ByteSource& source) {
  ArrowMessages out;
  MessageReader message(source);
  if (!message.read(0) || message.type() != kSchema)
    throw Damaged("it does not begin with a schema");
  out.fields = parse_arrow_schema(message.header());
  while (message.read(message.end())) {
    switch (message.type()) {
      case kRecordBatch: add_record_batch(message, out); break;
      case kDictionaryBatch: add_dictionary(message, out); break;
      default: throw Damaged(cat("there is a message of the unknown type ", int{message.type()}));
    }
  }
  return out;
}

// Footer: version, schema, dictionaries, record batches; the last two are vectors of Block
// {i64 offset, i32 bytes of the description, i64 bytes of the body}, each 24 bytes.
enum FooterField : int { kFooterSchema = 1, kFooterDictionaries = 2, kFooterBatches = 3 };
constexpr size_t kBlockBytes = 24;
constexpr std::string_view kMagic = "ARROW1";

ArrowMessages messages_of_file(const ByteSource& source) {
  const uint64_t size = source.size();
  const uint64_t tail_bytes = 4 + kMagic.size();
  if (size < 8 + tail_bytes) throw Damaged("it is too short");
  std::array<std::byte, 10> tail{};
  source.read(size - tail_bytes, tail);
  FlatBytes tail_bytes_view(tail);
  if (tail_bytes_view.text(4, kMagic.size()) != kMagic)
    throw Damaged("it does not end as an Arrow file does");
  const auto length = tail_bytes_view.load<uint32_t>(0);
  if (length > size - tail_bytes || length > kMaxDescription)
    throw Damaged(cat("it claims a footer of ", length, " bytes"));
  ByteBuffer bytes;
  bytes.resize(length);
  source.read(size - tail_bytes - length, bytes.bytes());
  const FlatTable footer = FlatTable::root(bytes.bytes());

  ArrowMessages out;
  out.fields = parse_arrow_schema(footer.needed_table(kFooterSchema, "schema"));
  MessageReader message(source);
  auto each_block = [&](int field, HeaderType type, auto add) {
    const FlatVector blocks = footer.vector(field, kBlockBytes);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto offset = blocks.number<int64_t>(i, kBlockBytes);
      if (offset < 0 || static_cast<uint64_t>(offset) >= size ||
          !message.read(static_cast<uint64_t>(offset)) || message.type() != type)
        throw Damaged(
            cat("its footer points to byte ", offset, ", where there is no such message"));
      add(message, out);
    }
  };
  each_block(kFooterDictionaries, kDictionaryBatch, add_dictionary);
  each_block(kFooterBatches, kRecordBatch, add_record_batch);
  return out;
}

}  // namespace

ArrowMessages find_arrow_messages(const ByteSource& source, TableForm form) {
  return form == TableForm::kArrowFile ? messages_of_file(source) : messages_of_stream(source);
}

FlatTable read_arrow_description(const ByteSource& source, const ArrowMessage& message,
                                 ByteBuffer& bytes) {
  bytes.resize(static_cast<size_t>(message.description_bytes));
  source.read(message.description, bytes.bytes());
  return FlatTable::root(bytes.bytes());
}

bool is_arrow_stream(const ByteSource& source, std::span<const std::byte> first) {
  FlatBytes head(first);
  if (head.load<uint32_t>(0) == kContinuation) return true;
  // Text read as a length is far more than a file is likely to have.
  const auto length = head.load<uint32_t>(0);
  if (length == 0 || length > kMaxDescription || length > source.size() - 4) return false;
  try {
    MessageReader message(source);
    return message.read(0) && message.type() == kSchema &&
           (parse_arrow_schema(message.header()), true);
  } catch (const Damaged&) {
    return false;
  } catch (const Unsupported&) {
    return false;
  }
}

}  // namespace tessera
