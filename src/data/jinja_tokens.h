#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// One token of a Jinja template.
struct JinjaToken {
  enum class Kind {
    kMark,     // {{ }} {% %} and operators
    kName,     // names and numbers
    kLiteral,  // a string, without quotes and escapes; text outside of tags, between {{ and }}
  };
  Kind kind;
  std::string text;
  bool operator==(const JinjaToken&) const = default;
};

// The tokens of a template as Hugging Face's programs read it: trim_blocks and lstrip_blocks are
// on, comments say nothing, x['key'] is x.key, white space in tags and the kind of quotes do not
// matter. Templates with the same tokens write the same text. Nothing is evaluated.
//
// UserError, naming `name`: a tag or string without an end, an escape or sign that templates of
// conversations do not have, more than 1 MiB.
std::vector<JinjaToken> jinja_tokens(std::string_view source, std::string_view name);

// XXH3 of the tokens, without the text of the literals whose numbers, from 0 on, are in `slots`.
uint64_t fingerprint_of(std::span<const JinjaToken> tokens, std::span<const int> slots);

}  // namespace tessera
