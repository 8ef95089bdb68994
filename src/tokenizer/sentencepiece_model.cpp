#include "tokenizer/sentencepiece_model.h"

#include <bit>
#include <bitset>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/code_points.h"

namespace tessera {
namespace {

using Kind = SentencePieceModel::Kind;

constexpr size_t kMaxFileBytes = size_t{64} << 20;
constexpr size_t kMaxPieces = size_t{1} << 21;  // the largest vocabularies in use have 0.9 M
constexpr size_t kMaxPieceBytes = 8000;         // SentencePiece's own limit
constexpr std::string_view kZeroByte("\0", 1);

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw UserError(cat("cannot read tokenizer '", name, "': ", what));
}

// One message in protobuf's wire format, field by field: a varint (field << 3 | type), then a
// varint (type 0), 8 bytes (1), a varint length and as many bytes (2), or 4 bytes (5).
class Message {
 public:
  Message(std::string_view bytes, const std::string& name) : rest_(bytes), name_(name) {}

  // Moves to the next field; false at the end.
  bool next() {
    if (rest_.empty()) return false;
    uint64_t key = take_varint();
    if (key >> 3 == 0 || key > std::numeric_limits<uint32_t>::max()) {
      refuse("a field has no valid number");
    }
    field_ = static_cast<uint32_t>(key >> 3);
    type_ = static_cast<uint32_t>(key & 7);
    switch (type_) {
      case 0: varint_ = take_varint(); break;
      case 1: content_ = take(8); break;
      case 2: content_ = take(take_varint()); break;
      case 5: content_ = take(4); break;
      default: refuse(cat("field ", field_, " has wire type ", type_));
    }
    return true;
  }

  uint32_t field() const { return field_; }
  uint64_t number() const {
    expect(0);
    return varint_;
  }
  bool flag() const { return number() != 0; }
  std::string_view bytes() const {
    expect(2);
    return content_;
  }
  float real() const {
    static_assert(std::endian::native == std::endian::little);
    expect(5);
    float value;
    std::memcpy(&value, content_.data(), sizeof value);
    return value;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    fail(name_, cat("it is no SentencePiece model, or damaged: ", why));
  }
  void expect(uint32_t type) const {
    if (type_ != type) refuse(cat("field ", field_, " has wire type ", type_, ", not ", type));
  }
  uint64_t take_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    refuse("a number has more than 10 bytes");
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) refuse("it ends within a field");
    std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  const std::string& name_;
  uint32_t field_ = 0, type_ = 0;
  uint64_t varint_ = 0;
  std::string_view content_;
};

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}
  SentencePieceModel read(std::string_view file);

 private:
  [[noreturn]] void fail(const std::string& what) const { tessera::fail(name_, what); }
  void read_piece(std::string_view bytes);
  void read_trainer(std::string_view bytes);
  void read_normalizer(std::string_view bytes);
  void check_piece(size_t id);
  void check();
  int32_t control(const std::string& name) const;

  const std::string& name_;
  SentencePieceModel model_;
  std::string begin_name_ = "<s>", end_name_ = "</s>";
  std::unordered_map<std::string_view, int32_t> ids_;
  std::bitset<256> bytes_;
  size_t added_bytes_ = 0;
};

void Reader::read_piece(std::string_view bytes) {
  if (model_.pieces.size() == kMaxPieces) fail(cat("it has more than ", kMaxPieces, " pieces"));
  SentencePieceModel::Piece& piece = model_.pieces.emplace_back();
  Message message(bytes, name_);
  while (message.next()) {
    if (message.field() == 1) piece.text = message.bytes();
    if (message.field() == 2) piece.score = message.real();
    if (message.field() == 3) {
      if (message.number() < 1 || message.number() > 6) {
        fail(cat("piece ", model_.pieces.size() - 1, " is of type ", message.number(),
                 ", which is not known"));
      }
      piece.kind = static_cast<Kind>(message.number());
    }
  }
}

void Reader::read_trainer(std::string_view bytes) {
  Message message(bytes, name_);
  while (message.next()) {
    switch (message.field()) {
      case 3:
        if (message.number() != 1 && message.number() != 2) {
          fail(cat("its model type ", message.number(),
                   " is not supported (supported: 1, unigram, and 2, BPE)"));
        }
        model_.algorithm = static_cast<SentencePieceModel::Algorithm>(message.number());
        break;
      case 24:
        if (message.flag()) fail("treat_whitespace_as_suffix is set; this is not supported");
        break;
      case 35: model_.byte_fallback = message.flag(); break;
      case 44: model_.unknown_text = message.bytes(); break;
      case 46:
        if (!message.bytes().empty()) begin_name_ = message.bytes();
        break;
      case 47:
        if (!message.bytes().empty()) end_name_ = message.bytes();
        break;
      default: break;
    }
  }
}

void Reader::read_normalizer(std::string_view bytes) {
  Message message(bytes, name_);
  while (message.next()) {
    switch (message.field()) {
      case 2: model_.charsmap = message.bytes(); break;
      case 3:
        model_.prefix =
            message.flag() ? SentencePieceModel::Prefix::kSpace : SentencePieceModel::Prefix::kNone;
        break;
      case 4: model_.collapse_spaces = message.flag(); break;
      case 5: model_.escape_spaces = message.flag(); break;
      default: break;
    }
  }
}

void Reader::check_piece(size_t id) {
  SentencePieceModel::Piece& piece = model_.pieces[id];
  if (piece.text.empty()) fail(cat("piece ", id, " is empty"));
  if (piece.text.size() >= kMaxPieceBytes) {
    fail(cat("piece ", id, " has ", piece.text.size(), " bytes, more than a piece may have"));
  }
  if (!is_utf8(piece.text)) fail(cat("piece ", id, " is not UTF-8"));
  if (!std::isfinite(piece.score)) fail(cat("the score of piece ", id, " is not finite"));
  // Some converters write it beside "<0x00>"; SentencePiece passes over it too.
  if (model_.byte_fallback && piece.text == kZeroByte) {
    piece.kind = Kind::kUnused;
    return;
  }
  if (piece.text.find('\0') != std::string::npos) fail(cat("piece ", id, " has a zero byte"));
  auto [known, inserted] = ids_.try_emplace(piece.text, static_cast<int32_t>(id));
  if (!inserted) fail(cat("pieces ", known->second, " and ", id, " are both '", piece.text, "'"));
  if (piece.kind == Kind::kUnknown) {
    if (model_.unknown >= 0) {
      fail(cat("pieces ", model_.unknown, " and ", id, " are both the unknown piece"));
    }
    model_.unknown = static_cast<int32_t>(id);
  }
  if (piece.kind == Kind::kControl) {
    added_bytes_ += piece.text.size();
    if (piece.text.size() > AddedTokens::kMaxTokenBytes || added_bytes_ > AddedTokens::kMaxBytes) {
      fail(
          cat("its control pieces are too long: piece ", id, " has ", piece.text.size(), " bytes"));
    }
    model_.added.push_back({.text = piece.text, .id = static_cast<int32_t>(id), .special = true});
  }
  if (piece.kind == Kind::kByte) {
    int byte = byte_of_piece(piece.text);
    if (byte < 0) fail(cat("piece ", id, ", '", piece.text, "', does not name a byte"));
    bytes_.set(static_cast<size_t>(byte));
  }
}

int32_t Reader::control(const std::string& name) const {
  auto found = ids_.find(name);
  if (found == ids_.end()) return -1;
  return model_.pieces[static_cast<size_t>(found->second)].kind == Kind::kControl ? found->second
                                                                                  : -1;
}

void Reader::check() {
  if (model_.pieces.empty()) fail("it has no pieces: it is no SentencePiece model");
  for (size_t id = 0; id < model_.pieces.size(); ++id) check_piece(id);
  if (model_.byte_fallback && !bytes_.all()) {
    fail("its byte_fallback is set, but not every byte has a piece");
  }
  if (!model_.byte_fallback && bytes_.any()) {
    fail("it has pieces for bytes, but its byte_fallback is not set");
  }
  if (!model_.byte_fallback && model_.unknown < 0) fail("it has no unknown piece");
  int32_t begin = control(begin_name_);
  if (begin >= 0) model_.document_prefix.push_back(begin);
  model_.end_of_text = control(end_name_);
  if (model_.end_of_text < 0) {
    fail(cat("it has no control piece '", end_name_,
             "' for the end of a text: it cannot separate documents"));
  }
  if (auto why = Charsmap::fault(model_.charsmap)) fail(cat("its precompiled_charsmap ", *why));
}

SentencePieceModel Reader::read(std::string_view file) {
  if (file.size() > kMaxFileBytes) {
    fail(cat("it has ", format_bytes(static_cast<int64_t>(file.size())), ", more than the ",
             format_bytes(static_cast<int64_t>(kMaxFileBytes)),
             " that a SentencePiece model may have"));
  }
  Message message(file, name_);
  while (message.next()) {
    switch (message.field()) {
      case 1: read_piece(message.bytes()); break;
      case 2: read_trainer(message.bytes()); break;
      case 3: read_normalizer(message.bytes()); break;
      case 5: {  // its only fields in use: a name (1) and a charsmap (2)
        Message denormalizer(message.bytes(), name_);
        while (denormalizer.next()) {
          if (denormalizer.field() != 2 || denormalizer.bytes().empty()) continue;
          fail("it has a denormalizer; this is not supported");
        }
        break;
      }
      default: break;  // samples for testing it, extensions
    }
  }
  check();
  return std::move(model_);
}

}  // namespace

std::string with_spaces(std::string_view text) {
  std::string spaced;
  spaced.reserve(text.size());
  for (size_t at; (at = text.find(kSpaceSymbol)) != std::string_view::npos;) {
    spaced.append(text.substr(0, at)).push_back(' ');
    text.remove_prefix(at + kSpaceSymbol.size());
  }
  return spaced.append(text);
}

int byte_of_piece(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  size_t high = kDigits.find(text[3]), low = kDigits.find(text[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return -1;
  return static_cast<int>(high * 16 + low);
}

SentencePieceModel parse_sentencepiece(std::string_view file, const std::string& name) {
  return Reader(name).read(file);
}

SentencePieceModel read_sentencepiece(const std::filesystem::path& path) {
  return parse_sentencepiece(MappedFile(path).text(), path.string());
}

}  // namespace tessera
