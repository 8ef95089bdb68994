#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/record_reader.h"

namespace tessera {

struct ChatStyle;

// How a conversation becomes text: what the chat template of a tokenizer says, without a Jinja
// interpreter. Known are the templates below. They are recognised by all of their statements
// (jinja_tokens.h), of which nothing but a default system prompt may differ; any other template is
// refused. The text is that of transformers' apply_chat_template without a generation prompt, to
// the byte, white space that a template strips included.
//
//   chatml, chatml-default-system, qwen2.5   <|im_start|>ROLE\n ... <|im_end|>\n
//   llama2                                   [INST] <<SYS>> ... [/INST] ... </s>
//   llama3, llama3-always-prompted, llama3.1 <|start_header_id|>ROLE<|end_header_id|> ...
//   <|eot_id|> mistral-v0.1, -v0.2, -v1, -v3, -v3-tekken, -v7   [INST] ... [/INST] ... </s> zephyr
//   <|user|>\n ... </s>\n plain                                    ... <|endoftext|> alpaca ###
//   Instruction:\n ... ### Response:\n ... </s>
//
// Learned are the answers: of every message of the assistant that is to be what follows the
// generation prompt of the template, up to and with the token that ends the turn. As the templates
// say it, mistral-v3 puts the system prompt before the last message if that is the user's, and else
// nowhere.
//
// Two things are stricter than in the templates: a message of a role that a template would leave
// out, and a conversation without messages, are errors.
class ChatTemplate {
 public:
  // `bos` and `eos`: the texts of the tokens, "" if there is none. `name` of where the template
  // comes from, for messages. UserError where the template is not one of those known, says what is
  // unknown in it; or needs a token that is missing.
  ChatTemplate(std::string_view jinja, std::string bos, std::string eos, std::string_view name);

  // One of those known, by its name. Its default system prompt, where it has one
  // (chatml-default-system, qwen2.5), is "You are a helpful assistant.". UserError for another
  // name.
  static ChatTemplate named(std::string_view style, std::string bos, std::string eos);

  // The text in spans, neighbours of one kind joined: what is learned and what is not, what comes
  // from the template (`markup`, in which names of special tokens are those tokens) and what from
  // the conversation (in which they are text). To get the ids that a tokenizer gives the whole
  // text, encode runs between special tokens at once: words reach across the ends of spans.
  // With `prompt` what stands before an answer follows. UserError where the template refuses the
  // conversation, naming the message, counted from 0.
  std::vector<TextSpan> render(std::span<const Message> messages, bool prompt = false) const;

  std::string_view name() const;  // as listed above
  // The tokens that it writes around texts; "" where it writes none.
  std::string_view begin_token() const;
  std::string_view end_token() const;
  // What ends an answer: the text of one token, as a rule.
  std::string answer_end() const;
  // The template for other programs: chat_jinja.h. Of one that was named the constructor knows it
  // again.
  std::string jinja() const;
  uint64_t fingerprint() const;  // of all that decides on a text

 private:
  ChatTemplate(const ChatStyle& style, std::string bos, std::string eos, std::string system);

  const ChatStyle* style_;
  std::string bos_, eos_, default_system_;
};

}  // namespace tessera
