#include "apps/tokenizer_command.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "apps/named_models.h"
#include "apps/progress.h"
#include "apps/text_input.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "data/document_reader.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(tessera tokenizer: train, use and inspect tokenizers

  tessera tokenizer train --input FILE... --output tokenizer.json [options]
      Learns byte-level BPE from text (plain or JSON lines, gzip or not) and writes it in the form
      of Hugging Face's tokenizer.json.
      --input FILE...      text to learn from
      --output FILE        where to write the tokenizer
      --vocab_size N       tokens, 256 bytes and <|endoftext|> among them (8192)
      --min_frequency N    how often a pair must occur to be merged (2)
      --threads N          threads (all cores); the result does not depend on it
      --on_bad_line WHAT   broken JSON lines: error or skip (error)

  tessera tokenizer encode --tokenizer T [FILE]
      Prints the ids of FILE's bytes, or of standard input.
  tessera tokenizer decode --tokenizer T [FILE]
      Prints the text of ids, separated by spaces, commas or lines.
  tessera tokenizer info --tokenizer T
      Prints kind, size and fingerprint.
      --tokenizer T        "byte", a tokenizer.json, a vocab.json with its merges.txt, a SentencePiece
                           .model, a tokenizer.model or .tiktoken file of ranks, or a directory with
                           one of them; OWNER/NAME[@REVISION] of a model on the hub, or the https or
                           s3 address of a directory or file, which is fetched
      --cache_dir DIR      where fetched files are kept (cache)

Options are written --name value or --name=value; - and _ in names are the same.

Examples:
  tessera tokenizer train --input book.txt more.jsonl.gz --vocab_size 16384 --output tokenizer.json
  echo "Call me Ishmael." | tessera tokenizer encode --tokenizer tokenizer.json
  tessera tokenizer encode --tokenizer byte book.txt | tessera tokenizer decode --tokenizer byte
)";

// The words of a command line: options with their values, and the rest.
class Arguments {
 public:
  // An option named in `lists` takes all words up to the next option.
  Arguments(std::span<const std::string> words, std::vector<std::string> names,
            std::string_view lists = "");

  bool help() const { return help_; }
  bool has(const std::string& name) const { return values_.contains(name); }
  const std::vector<std::string>& list(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  int64_t number(const std::string& name, int64_t fallback, int64_t low, int64_t high) const;
  const std::vector<std::string>& rest() const { return rest_; }

 private:
  std::map<std::string, std::vector<std::string>> values_;
  std::vector<std::string> rest_;
  bool help_ = false;
};

Arguments::Arguments(std::span<const std::string> words, std::vector<std::string> names,
                     std::string_view lists) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--help" || word == "-h") {
      help_ = true;
      continue;
    }
    if (!word.starts_with("--")) {
      rest_.push_back(word);
      continue;
    }
    size_t equals = word.find('=');
    std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::ranges::replace(name, '-', '_');
    if (std::ranges::find(names, name) == names.end()) {
      std::string close = nearest(name, names);
      throw UsageError(cat("unknown option --", name,
                           close.empty() ? "" : cat("; did you mean --", close, "?"),
                           " (see tessera tokenizer --help)"));
    }
    std::vector<std::string>& values = values_[name];
    if (name != lists && !values.empty()) throw UsageError(cat("--", name, " is given twice"));
    if (equals != std::string::npos) {
      values.push_back(word.substr(equals + 1));
      continue;
    }
    size_t before = values.size();
    while (i + 1 < words.size() && !words[i + 1].starts_with("--")) {
      values.push_back(words[++i]);
      if (name != lists) break;
    }
    if (values.size() == before) throw UsageError(cat("--", name, " needs a value"));
  }
}

const std::vector<std::string>& Arguments::list(const std::string& name) const {
  auto found = values_.find(name);
  if (found == values_.end()) {
    throw UsageError(cat("--", name, " is required (see tessera tokenizer --help)"));
  }
  return found->second;
}

const std::string& Arguments::text(const std::string& name) const {
  const std::string& value = list(name).front();
  if (value.empty()) throw UsageError(cat("--", name, " is empty"));
  return value;
}

// The whole of `word` as a number in [low, high]; false otherwise.
bool read_number(std::string_view word, int64_t low, int64_t high, int64_t& number) {
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() && number >= low &&
         number <= high;
}

int64_t Arguments::number(const std::string& name, int64_t fallback, int64_t low,
                          int64_t high) const {
  if (!has(name)) return fallback;
  int64_t number = 0;
  if (!read_number(text(name), low, high, number)) {
    throw UsageError(cat("--", name, " must be a whole number from ", low, " to ", high, ", not '",
                         text(name), "'"));
  }
  return number;
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw UserError("cannot write to standard output");
  }
}

std::string read_input(const Arguments& arguments) {
  if (arguments.rest().size() > 1) {
    throw UsageError(cat("one file at most, but '", arguments.rest()[1], "' follows '",
                         arguments.rest()[0], "'"));
  }
  return read_text_input(arguments.rest().empty() ? "-" : arguments.rest()[0]);
}

// Before hours of work: that it can be written, and takes the place of a tokenizer at most.
void check_tokenizer_output(const std::filesystem::path& output,
                            const std::vector<std::string>& inputs) {
  std::error_code ignored;
  for (const std::string& input : inputs)
    if (std::filesystem::equivalent(input, output, ignored))
      throw UsageError(cat("--output '", output.string(), "' is one of the files to read"));
  if (output.has_parent_path() && !std::filesystem::is_directory(output.parent_path(), ignored))
    throw UserError(cat("--output '", output.string(), "': there is no directory '",
                        output.parent_path().string(), "'"));
  if (!std::filesystem::exists(output, ignored)) return;
  try {
    (void)load_tokenizer(output.string());
  } catch (const UserError&) {
    throw UserError(cat("--output '", output.string(),
                        "' is there and no tokenizer, so it is not overwritten"));
  }
}

int train(const Arguments& arguments) {
  if (!arguments.rest().empty()) {
    throw UsageError(
        cat("unexpected word '", arguments.rest()[0], "'; input files follow --input"));
  }
  BpeTrainerOptions options;
  options.vocab_size =
      static_cast<int32_t>(arguments.number("vocab_size", options.vocab_size, 257, 4 << 20));
  options.min_frequency = arguments.number("min_frequency", options.min_frequency, 1,
                                           std::numeric_limits<int64_t>::max());
  options.threads = static_cast<int>(arguments.number("threads", available_cores(), 1, 1024));
  DocumentReaderOptions reading;
  if (arguments.has("on_bad_line")) {
    const std::string& what = arguments.text("on_bad_line");
    if (what != "error" && what != "skip") {
      throw UsageError(cat("--on_bad_line must be error or skip, not '", what, "'"));
    }
    reading.skip_bad_lines = what == "skip";
  }
  const std::vector<std::string>& inputs = arguments.list("input");
  std::filesystem::path output = arguments.text("output");
  check_tokenizer_output(output, inputs);

  double start = monotonic_seconds();
  DocumentReader reader(std::vector<std::filesystem::path>(inputs.begin(), inputs.end()), reading);
  Progress counting("reading"), merging("merging");
  int64_t documents = 0, text_bytes = 0;
  auto next = [&](std::string& document) {
    counting.show(reader.bytes_read(), reader.bytes_total(), format_bytes);
    if (!reader.next(document)) {
      merging = Progress("merging");
      return false;
    }
    ++documents;
    text_bytes += static_cast<int64_t>(document.size());
    return true;
  };
  options.progress = [&](int64_t done, int64_t total) {
    merging.show(done, total, [](int64_t n) { return cat(n, " tokens"); });
  };
  ByteLevelBpe tokenizer(train_bpe(next, options));
  write_tokenizer_json(output, tokenizer.model());
  if (tokenizer.vocab_size() < options.vocab_size) {
    print(cat("the text holds no more pairs that occur ", options.min_frequency,
              " times: ", tokenizer.vocab_size(), " tokens instead of ", options.vocab_size, "\n"));
  }
  double seconds = monotonic_seconds() - start;
  auto rate = static_cast<int64_t>(static_cast<double>(text_bytes) / seconds);
  print(cat("wrote ", output.string(), ": ", tokenizer.description(), ", from ", documents,
            documents == 1 ? " document" : " documents", ", ", format_bytes(text_bytes), " in ",
            format("%.1f", seconds), " s (", format_bytes(rate), "/s)\n"));
  return 0;
}

std::unique_ptr<Tokenizer> open_tokenizer(const Arguments& arguments) {
  RunConfig config;
  if (arguments.has("cache_dir")) config.cache_dir = arguments.text("cache_dir");
  return load_tokenizer(fetch_named_tokenizer(arguments.text("tokenizer"), config));
}

int encode(const Arguments& arguments) {
  auto tokenizer = open_tokenizer(arguments);
  std::vector<int32_t> ids;
  tokenizer->encode(read_input(arguments), ids);
  print(join(ids, " ") + "\n");
  return 0;
}

int decode(const Arguments& arguments) {
  auto tokenizer = open_tokenizer(arguments);
  std::string input = read_input(arguments);
  constexpr std::string_view kSeparators = " ,\t\r\n";
  std::vector<int32_t> ids;
  for (size_t begin = 0;
       (begin = input.find_first_not_of(kSeparators, begin)) != std::string::npos;) {
    size_t end = std::min(input.find_first_of(kSeparators, begin), input.size());
    std::string_view word = std::string_view(input).substr(begin, end - begin);
    int64_t id = 0;
    if (!read_number(word, 0, std::numeric_limits<int32_t>::max(), id)) {
      throw UserError(cat("'", word.substr(0, 40), "' is not a token id (byte ", begin,
                          " of the input); ids are separated by spaces, commas or lines"));
    }
    ids.push_back(static_cast<int32_t>(id));
    begin = end;
  }
  print(tokenizer->decode(ids));
  return 0;
}

int info(const Arguments& arguments) {
  if (!arguments.rest().empty()) {
    throw UsageError(cat("unexpected word '", arguments.rest()[0], "'"));
  }
  auto tokenizer = open_tokenizer(arguments);
  auto named = [&](int32_t id) { return cat(id, " (", tokenizer->token_bytes(id), ")"); };
  std::string lines = cat("kind         ", tokenizer->description(), "\n");
  for (int32_t id : tokenizer->document_prefix()) lines += cat("before text  ", named(id), "\n");
  print(cat(lines, "end of text  ", named(tokenizer->end_of_text()), "\nfingerprint  ",
            hex(tokenizer->fingerprint()), "\n"));
  return 0;
}

struct Command {
  std::string name;
  std::vector<std::string> options;
  int (*run)(const Arguments&);
};

}  // namespace

int tokenizer_command(std::span<const std::string> arguments) {
  const Command commands[] = {
      {"train",
       {"input", "output", "vocab_size", "min_frequency", "threads", "on_bad_line"},
       train},
      {"encode", {"tokenizer", "cache_dir"}, encode},
      {"decode", {"tokenizer", "cache_dir"}, decode},
      {"info", {"tokenizer", "cache_dir"}, info}};
  if (arguments.empty()) {
    throw UsageError("tessera tokenizer needs a command: train, encode, decode or info");
  }
  if (arguments[0] == "--help" || arguments[0] == "-h") {
    print(kHelp);
    return 0;
  }
  for (const Command& command : commands) {
    if (command.name != arguments[0]) continue;
    Arguments parsed(arguments.subspan(1), command.options, "input");
    if (!parsed.help()) return command.run(parsed);
    print(kHelp);
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  std::string close = nearest(arguments[0], names);
  throw UsageError(cat("unknown command 'tokenizer ", arguments[0], "'",
                       close.empty() ? "" : cat("; did you mean ", close, "?"),
                       " (train, encode, decode or info)"));
}

}  // namespace tessera
