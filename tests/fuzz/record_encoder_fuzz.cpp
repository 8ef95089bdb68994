#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/record_encoder.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_level_bpe.h"

namespace {

using namespace tessera;

// A few merges and special tokens with all flags that matter here.
const Tokenizer& tokenizer() {
  static const ByteLevelBpe bpe = [] {
    BpeModel model =
        train_bpe({{"the", 9}, {" the", 9}, {"\n\n", 9}, {"re", 5}}, {.vocab_size = 270});
    auto add = [&](const char* text, bool left, bool right) {
      model.added.push_back({.text = text,
                             .id = static_cast<int32_t>(model.tokens.size()),
                             .special = true,
                             .strip_left = left,
                             .strip_right = right});
      model.tokens.emplace_back(text);
    };
    add("<|im_start|>", true, false);
    add("<|im_end|>", false, true);
    add("<s>", false, false);
    add("</s>", false, false);
    model.nfc = true;
    return ByteLevelBpe(std::move(model));
  }();
  return bpe;
}

}  // namespace

// A record made of lines: the first character of a line says what it is. Ids and marks of one
// length, ids inside the vocabulary, and all text back, or a UserError.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(data, data + size);
  Record record;
  for (size_t begin = 0, end; begin < input.size(); begin = end + 1) {
    end = std::min(input.find('\0', begin), input.size());
    const std::string text = input.substr(begin + 1, end - begin - 1);
    switch (input[begin]) {
      case 't': record.text = text; break;
      case 'u': record.messages.push_back({"user", text}); break;
      case 'a': record.messages.push_back({"assistant", text}); break;
      case 's': record.messages.push_back({"system", text}); break;
      case 'p': record.spans.push_back({text, false}); break;
      case 'c': record.spans.push_back({text, true}); break;
      case 'm': record.spans.push_back({text, true, true}); break;
      case 'l': record.labels.push_back(text.empty() ? -100 : text[0]); break;
      default: record.ids.push_back(static_cast<signed char>(input[begin]));
    }
  }
  static const RecordEncoder encoders[] = {
      RecordEncoder(tokenizer()),
      RecordEncoder(tokenizer(), ChatTemplate::named("chatml", "", "")),
      RecordEncoder(tokenizer(), ChatTemplate::named("llama2", "<s>", "</s>")),
  };
  std::vector<int32_t> ids;
  std::vector<uint8_t> learned;
  for (const RecordEncoder& encoder : encoders) {
    try {
      encoder.encode(record, ids, learned);
    } catch (const UserError&) {
      continue;
    }
    if (ids.size() != learned.size()) std::abort();
    for (int32_t id : ids) tokenizer().token_bytes(id);
  }
  return 0;
}
