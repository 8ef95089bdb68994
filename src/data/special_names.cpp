#include "data/special_names.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace tessera {
namespace {

// Whether a token is one that ordinary text never becomes.
bool is_special(const Tokenizer& tokenizer, int32_t id, std::string_view name) {
  std::vector<int32_t> as_text;
  tokenizer.encode(name, as_text);
  return as_text.size() != 1 || as_text[0] != id;
}

// Where their names stand in a text, in order.
std::vector<TextRange> special_names(const Tokenizer& tokenizer, std::string_view text) {
  const TextRange whole{0, text.size()};
  std::vector<int32_t> ids;
  std::vector<TextRange> names;
  size_t begin = 0;
  for (const EncodedRun& run : tokenizer.encode_marked({text, {&whole, 1}}, ids)) {
    const std::string_view name = text.substr(run.text.begin, run.text.end - run.text.begin);
    if (run.added && run.ids_end > begin && is_special(tokenizer, ids[begin], name))
      names.push_back(run.text);
    begin = run.ids_end;
  }
  return names;
}

std::string with_names_marked(const Tokenizer& tokenizer, std::string_view text) {
  std::string marked;
  size_t done = 0;
  for (TextRange name : special_names(tokenizer, text)) {
    marked += cat(text.substr(done, name.begin - done), "\\");
    done = name.begin;
  }
  return cat(marked, text.substr(done));
}

}  // namespace

std::string special_name_warning(std::span<const RemoteEntry> files, DocumentReaderOptions options,
                                 const Tokenizer& tokenizer) {
  constexpr int64_t kLookedBytes = int64_t{256} << 10;
  options.warned = std::make_shared<std::atomic<bool>>(true);  // of broken lines: who reads all
  int64_t looked = 0;
  auto look = [&](std::string_view text) -> std::string {
    text = text.substr(0, static_cast<size_t>(std::max<int64_t>(0, kLookedBytes - looked)));
    looked += std::max<int64_t>(1, std::ssize(text));
    const std::vector<TextRange> names = special_names(tokenizer, text);
    if (names.empty()) return "";
    return cat("holds '", text.substr(names[0].begin, names[0].end - names[0].begin),
               "', the name of a special token, which is ordinary characters in a text: give "
               "conversations as \"messages\"; tessera data inspect --tokenizer "
               "shows such names behind a backslash");
  };
  DocumentReader reader(std::vector<RemoteEntry>(files.begin(), files.end()), options);
  std::string text;
  Record record;
  while (looked < kLookedBytes) {
    std::string found;
    if (options.kind == RecordKind::kText) {
      if (reader.next_part(text) == TextPart::kNone) break;
      found = look(text);
    } else {
      if (!reader.next(record)) break;
      ++looked;  // of messages
      for (const TextSpan& span : record.spans)
        if (found.empty()) found = look(span.text);
    }
    if (!found.empty()) return found;
  }
  return "";
}

std::string decode_with_names(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string marked, text, run;  // `text`: of all ids so far
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string longer = tokenizer.decode(ids.first(i + 1));
    const std::string_view added =
        std::string_view(longer).substr(std::min(text.size(), longer.size()));
    const std::string_view name = tokenizer.token_bytes(ids[i]);
    if (find_token(tokenizer, name) == ids[i] && is_special(tokenizer, ids[i], name)) {
      marked += cat(with_names_marked(tokenizer, run), added);
      run.clear();
    } else {
      run += added;
    }
    text = longer;
  }
  return marked + with_names_marked(tokenizer, run);
}

}  // namespace tessera
