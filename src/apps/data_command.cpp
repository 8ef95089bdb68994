#include "apps/data_command.h"

#include <vector>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr const char* kDataHelp =
    R"(Usage: tessera data prepare --dataset DATA --tokenizer T --output_dir DIR [OPTIONS]
       tessera data inspect PATH [OPTIONS]

prepare tokenizes data once, with all threads, into a directory of shards that `tessera train --dataset DIR`
takes. What is cut off, by Ctrl-C, a kill or a power cut, goes on behind the last whole shard when the same
command is given again, and leaves the same files. 1 % of the documents is held out unless the data have files
for that or --validation_fraction says otherwise.

inspect says what lies in a file or directory: form, documents, tokens, their lengths, what of them is learned,
what windows and rows of --max_context_width waste, how many documents are copies, and shows some. It reads
text, JSON lines, Arrow and Parquet, .bin files of ids and prepared directories, and checks all hashes of those.

--preset takes the arguments of other programs' preparations as they are:
  grouped      the corpus preparation of Hugging Face examples: rows of 4096 tokens, the last 20 % held out,
               in DIR/train and DIR/val
  openwebtext  nanoGPT's: train.bin and val.bin of 2-byte ids in DIR/openwebtext, 0.0005 held out
  wikicorpus   rows of 4096 tokens of wikicorpus raw_en

Examples
  tessera data prepare --dataset text.jsonl.gz --tokenizer tokenizer.json --output_dir prepared
  tessera train --dataset prepared --tokenizer tokenizer.json ...
  tessera data prepare --preset grouped --dataset_path corpus --hf_tokenizer_name llama --output_dir out --seq_len 2048
  tessera data prepare --preset openwebtext --dataset texts --output-dir data --test-size 0.01
  tessera data inspect prepared --tokenizer tokenizer.json --max_context_width 4096
  tessera data inspect text.jsonl.gz

Options
)";

}  // namespace

int data_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kData);
  if (parsed.help) return print_help(parsed, kDataHelp);
  const std::vector<std::string> commands{"prepare", "inspect"};
  if (parsed.words.empty()) throw UsageError("tessera data needs a command: prepare or inspect");
  const std::string& command = parsed.words[0];
  log_messages(parsed);
  if (command == "prepare") return prepare_data(parsed);
  if (command == "inspect") return inspect_data(parsed);
  const std::string close = nearest(command, commands);
  throw UsageError(cat("unknown command 'data ", command, "'",
                       close.empty() ? "" : cat("; did you mean ", close, "?"),
                       " (prepare or inspect)"));
}

}  // namespace tessera
