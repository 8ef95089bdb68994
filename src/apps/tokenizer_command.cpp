#include "apps/tokenizer_command.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <vector>

#include "apps/named_models.h"
#include "apps/own_options.h"
#include "apps/progress.h"
#include "apps/text_input.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/local_output.h"
#include "base/parse_number.h"
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
  tessera tokenizer encode --tokenizer T [FILE]
      Prints the ids of FILE's bytes, or of standard input.
  tessera tokenizer decode --tokenizer T [FILE]
      Prints the text of ids, separated by spaces, commas or lines.
  tessera tokenizer info --tokenizer T
      Prints kind, size and fingerprint.

T is "byte", a tokenizer.json, a vocab.json with its merges.txt, a SentencePiece .model, a
tokenizer.model or .tiktoken file of ranks, or a directory with one of them; OWNER/NAME[@REVISION]
(or gpt2) of a model on the hub, or the https or s3 address of a directory or file, which is fetched.

Examples:
  tessera tokenizer train --input book.txt more.jsonl.gz --vocab_size 16384 --output tokenizer.json
  echo "Call me Ishmael." | tessera tokenizer encode --tokenizer tokenizer.json
  tessera tokenizer encode --tokenizer byte book.txt | tessera tokenizer decode --tokenizer byte

Options are written --name value or --name=value; - and _ in names are the same:
)";

// What a command line asks for.
struct Job {
  std::vector<std::string> words;  // of train also those behind --input: its files
  std::string output, tokenizer;
  bool skips_bad_lines = false;
  BpeTrainerOptions trainer{.threads = 0};  // all cores
  RunConfig config;
};

using Text = const std::string&;

constexpr CommandOption<Job> kTrainOptions[] = {
    {"input", "", "FILE...", "train: text to learn from",
     [](Job& o, Text v, Text) { o.words.push_back(v); }},
    {"output", "", "FILE", "train: where to write the tokenizer",
     [](Job& o, Text v, Text) { o.output = v; }},
    {"vocab_size", "", "N", "train: tokens, with 256 bytes and <|endoftext|>, default 8192",
     [](Job& o, Text v, Text s) { o.trainer.vocab_size = number(v, 257, 4 << 20, s); }},
    {"min_frequency", "", "N", "train: how often a pair must occur to be merged, default 2",
     [](Job& o, Text v, Text s) {
       o.trainer.min_frequency = number<int64_t>(v, 1, kNoMaximum, s);
     }},
    {"threads", "", "N", "train: default all cores; the result does not depend on it",
     [](Job& o, Text v, Text s) { o.trainer.threads = number(v, 1, 1024, s); }},
    {"on_bad_line", "", "WHAT", "train: error or skip, of broken JSON lines, default error",
     [](Job& o, Text v, Text s) {
       o.skips_bad_lines = one_of({"error", "skip"}, v, s) == "skip";
     }},
};

constexpr CommandOption<Job> kUseOptions[] = {
    {"tokenizer", "", "T", "encode, decode, info: the tokenizer",
     [](Job& o, Text v, Text) { o.tokenizer = v; }},
    {"cache_dir", "", "DIR", "encode, decode, info: where fetched files are kept, default cache",
     [](Job& o, Text v, Text) { o.config.cache_dir = v; }},
};

void require(std::string_view name, bool given) {
  if (!given) throw UsageError(cat("--", name, " is required (see tessera tokenizer --help)"));
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw UserError("cannot write to standard output");
  }
}

std::string read_input(const Job& job) {
  if (job.words.size() > 1)
    throw UsageError(
        cat("one file at most, but '", job.words[1], "' follows '", job.words[0], "'"));
  return read_text_input(job.words.empty() ? "-" : job.words[0]);
}

// Before hours of work: that it can be written, and takes the place of a tokenizer at most.
void check_tokenizer_output(const std::filesystem::path& output,
                            const std::vector<std::string>& inputs) {
  require_local_output("--output", output.string());
  std::error_code ignored;
  for (const std::string& input : inputs)
    if (std::filesystem::equivalent(input, output, ignored))
      throw UsageError(cat("--output '", output.string(), "' is one of the files to read"));
  if (output.has_parent_path() && !std::filesystem::is_directory(output.parent_path(), ignored))
    throw UserError(cat("--output '", output.string(), "': there is no directory '",
                        output.parent_path().string(), "'"));
  if (!is_there(output)) return;
  try {
    (void)load_tokenizer(output.string());
  } catch (const UserError&) {
    throw UserError(cat("--output '", output.string(),
                        "' is there and no tokenizer, so it is not overwritten"));
  }
}

int train(Job& job) {
  require("input", !job.words.empty());
  require("output", !job.output.empty());
  if (job.trainer.threads == 0) job.trainer.threads = available_cores();
  const std::filesystem::path output = job.output;
  check_tokenizer_output(output, job.words);

  double start = monotonic_seconds();
  DocumentReader reader(std::vector<std::filesystem::path>(job.words.begin(), job.words.end()),
                        {.skip_bad_lines = job.skips_bad_lines});
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
  job.trainer.progress = [&](int64_t done, int64_t total) {
    merging.show(done, total, [](int64_t n) { return cat(n, " tokens"); });
  };
  ByteLevelBpe tokenizer(train_bpe(next, job.trainer));
  write_tokenizer_json(output, tokenizer.model());
  if (tokenizer.vocab_size() < job.trainer.vocab_size) {
    print(cat("the text holds no more pairs that occur ", job.trainer.min_frequency, " times: ",
              tokenizer.vocab_size(), " tokens instead of ", job.trainer.vocab_size, "\n"));
  }
  double seconds = monotonic_seconds() - start;
  auto rate = static_cast<int64_t>(static_cast<double>(text_bytes) / seconds);
  print(cat("wrote ", output.string(), ": ", tokenizer.description(), ", from ", documents,
            documents == 1 ? " document" : " documents", ", ", format_bytes(text_bytes), " in ",
            format("%.1f", seconds), " s (", format_bytes(rate), "/s)\n"));
  return 0;
}

std::unique_ptr<Tokenizer> open_tokenizer(const Job& job) {
  require("tokenizer", !job.tokenizer.empty());
  return load_tokenizer(fetch_named_tokenizer(job.tokenizer, job.config));
}

int encode(Job& job) {
  auto tokenizer = open_tokenizer(job);
  std::vector<int32_t> ids;
  tokenizer->encode(read_input(job), ids);
  print(join(ids, " ") + "\n");
  return 0;
}

int decode(Job& job) {
  auto tokenizer = open_tokenizer(job);
  std::string input = read_input(job);
  constexpr std::string_view kSeparators = " ,\t\r\n";
  std::vector<int32_t> ids;
  for (size_t begin = 0;
       (begin = input.find_first_not_of(kSeparators, begin)) != std::string::npos;) {
    size_t end = std::min(input.find_first_of(kSeparators, begin), input.size());
    std::string_view word = std::string_view(input).substr(begin, end - begin);
    const auto id = parse_number<int32_t>(word);
    if (!id || *id < 0) {
      throw UserError(cat("'", word.substr(0, 40), "' is not a token id (byte ", begin,
                          " of the input); ids are separated by spaces, commas or lines"));
    }
    ids.push_back(*id);
    begin = end;
  }
  print(tokenizer->decode(ids));
  return 0;
}

int info(Job& job) {
  if (!job.words.empty())
    throw UsageError(
        cat("unexpected word '", job.words[0], "'; the tokenizer is given by --tokenizer"));
  auto tokenizer = open_tokenizer(job);
  auto named = [&](int32_t id) { return cat(id, " (", tokenizer->token_bytes(id), ")"); };
  std::string lines = cat("kind         ", tokenizer->description(), "\n");
  for (int32_t id : tokenizer->document_prefix()) lines += cat("before text  ", named(id), "\n");
  print(cat(lines, "end of text  ", named(tokenizer->end_of_text()), "\nfingerprint  ",
            hex(tokenizer->fingerprint()), "\n"));
  return 0;
}

struct Command {
  std::string name;
  std::span<const CommandOption<Job>> options;
  int (*run)(Job&);
};

}  // namespace

std::vector<OptionText> tokenizer_options() {
  std::vector<OptionText> all = texts(kTrainOptions);
  all.insert(all.end(), std::begin(kUseOptions), std::end(kUseOptions));
  return all;
}

int tokenizer_command(std::span<const std::string> arguments) {
  const Command commands[] = {{"train", kTrainOptions, train},
                              {"encode", kUseOptions, encode},
                              {"decode", kUseOptions, decode},
                              {"info", kUseOptions, info}};
  if (arguments.empty())
    throw UsageError("tessera tokenizer needs a command: train, encode, decode or info");
  if (is_help(arguments[0])) {
    print(kHelp + option_lines(tokenizer_options()));
    return 0;
  }
  for (const Command& command : commands) {
    if (command.name != arguments[0]) continue;
    Job job;
    const bool runs = parse_own_options(command.options, arguments.subspan(1), kHelp, job,
                                        {.repeated = "input", .words = &job.words});
    return runs ? command.run(job) : 0;
  }
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  std::string close = nearest(arguments[0], names);
  throw UsageError(cat("unknown command 'tokenizer ", arguments[0], "'",
                       close.empty() ? "" : cat("; did you mean ", close, "?"),
                       " (train, encode, decode or info)"));
}

}  // namespace tessera
