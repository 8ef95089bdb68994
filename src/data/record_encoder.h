#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/chat_template.h"
#include "data/record_reader.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// Records of any form as token ids, and which of them are learned: count as targets in the loss.
//
//   text      the tokenizer's document prefix, the text, end of text; all learned
//   ids       as they are; learned unless their label is kIgnoreIndex
//   messages  what transformers' apply_chat_template(tokenize=True) gives: the text of the chat
//             template, nothing around it; learned are the answers (chat_template.h)
//   spans     document prefix, all text in one, end of text, which is learned with the last span.
//             A prompt and its completion become what TRL makes of them
//
// Names of special tokens are those tokens in the markup of a template alone; in messages, texts
// and prompts they are ordinary text. Text between special tokens is encoded at once, so that words
// reach across the ends of messages as they do for the model that is to answer. A token is learned
// if all of its text is: one that reaches from a prompt into its answer is not, since a model that
// is given the prompt cannot write it; nor is one that reaches out of the answer. Where a tokenizer
// changes text (normalization, a space in front), the border lies behind as many bytes of tokens
// as the text before it has if it is encoded alone.
//
// Const methods may be called from several threads at once.
class RecordEncoder {
 public:
  // `tokenizer` must live longer. Without a template conversations are refused, as are those in
  // which it writes tokens that lie outside the model's `vocab_size`. UserError where the template
  // ends answers by a token that the tokenizer does not have.
  explicit RecordEncoder(const Tokenizer& tokenizer, std::optional<ChatTemplate> chat = {},
                         std::optional<int64_t> vocab_size = {});

  // `ids` and `learned` are overwritten; they are of one length, and empty for a record that holds
  // nothing. UserError, which names no place, for ids outside the vocabulary, labels that do not
  // fit, and conversations that the template refuses.
  void encode(const Record& record, std::vector<int32_t>& ids, std::vector<uint8_t>& learned) const;

  // The ids of a conversation of one message, the user's, up to where the answer begins; there must
  // be a template.
  std::vector<int32_t> encode_question(const std::string& question) const;

  // Of all that decides on ids and learned: for caches.
  uint64_t fingerprint() const;

 private:
  void encode_ids(const Record& record, std::vector<int32_t>& ids,
                  std::vector<uint8_t>& learned) const;
  void encode_spans(std::span<const TextSpan> spans, std::vector<int32_t>& ids,
                    std::vector<uint8_t>& learned) const;

  const Tokenizer& tokenizer_;
  std::optional<ChatTemplate> chat_;
  int64_t vocab_size_;
};

// Of a template that ends its answers with what is no token of the tokenizer: that other programs,
// which stop at a token, go on behind them. Else "".
std::string answer_end_warning(const Tokenizer& tokenizer, const ChatTemplate& chat);

}  // namespace tessera
