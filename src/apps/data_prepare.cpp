#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/data_command.h"
#include "apps/data_input.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/ignore_index.h"
#include "base/interruption.h"
#include "base/local_output.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/directory_lock.h"
#include "data/preparation.h"
#include "data/prepared_dataset.h"
#include "data/special_names.h"
#include "data/token_cache_format.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// What a preset says where the command line does not. nanoGPT's and the corpus preparation's own
// names for options are aliases in the table.
void apply_preset(ParsedOptions& parsed) {
  RunConfig& config = parsed.config;
  auto preset = [&](std::string_view option, auto& field, const auto& value) {
    if (!parsed.is_given(option)) field = value;
  };
  if (config.preset == "grouped" || config.preset == "wikicorpus") {
    preset("rows", config.rows, "windows");
    preset("max_context_width", config.max_context_width, 4096);
    preset("append_eos", config.append_eos, false);
  }
  if (config.preset == "grouped") {
    preset("tokenizer", config.tokenizer, "meta-llama/Llama-2-7b-hf");
    if (!parsed.is_given("validation_fraction"))
      preset("val_split_percentage", config.val_split_percentage, 20.0);
  } else if (config.preset == "wikicorpus") {
    preset("dataset", config.dataset, "wikicorpus");
    preset("dataset_config_name", config.dataset_config_name, "raw_en");
    preset("tokenizer", config.tokenizer, ".");
    preset("validation_fraction", config.validation_fraction, 0.0);
    preset("output_dir", config.output_dir, "wikicorpus_llama2_7B_tokenized_4k");
  } else if (config.preset == "openwebtext") {
    preset("dataset", config.dataset, "openwebtext");
    preset("tokenizer", config.tokenizer, "hf://gpt2");
    preset("output_form", config.output_form, "bin");
    preset("validation_fraction", config.validation_fraction, 0.0005);
    preset("seed", config.seed, 2357);
    preset("output_dir", config.output_dir, "data");
    const std::string name = fs::path(config.dataset).lexically_normal().filename().string();
    config.output_dir = fs::path(config.output_dir) / (name.empty() ? "openwebtext" : name);
  }
  const bool has_dataset = config.preset == "wikicorpus" || config.preset == "openwebtext";
  if (!parsed.is_given("dataset") && !has_dataset)
    throw UsageError("--dataset is required: what to prepare");
  if (config.output_dir.empty()) throw UsageError("--output_dir is required: where to write");
  if (config.val_split_percentage) {
    if (parsed.is_given("validation_fraction")) {
      throw UsageError(
          "--val_split_percentage and --validation_fraction (--test_size) contradict "
          "each other: give one");
    }
    config.validation_fraction = *config.val_split_percentage / 100;
    if (!parsed.is_given("validation_split")) config.validation_split = "last";
  }
}

// Nothing else can be said in a .bin file.
void require_all_learned(bool all) {
  if (all) return;
  throw UserError(
      "what is learned of the rows cannot be said in a .bin file: leave out --output_form bin");
}

PreparationJob preparation_of(const RunConfig& config, const DataInput& input) {
  PreparationJob job;
  job.encoding = input.encoding(config.append_eos);
  if (input.tokenizer) {
    job.tokenizer = input.tokenizer->description();
    job.tokenizer_fingerprint = input.tokenizer->fingerprint();
    if (input.encoder) job.encoder_fingerprint = input.encoder->fingerprint();
    job.end_of_text = input.tokenizer->end_of_text();
  }
  job.training = input.files.training;
  job.validation = input.files.validation;
  job.reading = input.reading;
  if (job.validation.empty()) job.validation_fraction = config.validation_fraction;
  job.split = config.validation_split == "last" ? PreparationJob::Split::kLast
                                                : PreparationJob::Split::kRandom;
  job.seed = static_cast<uint64_t>(config.seed);
  job.shard_tokens = config.shard_tokens;
  if (config.rows == "windows") job.window = config.max_context_width;
  job.folders = config.preset == "grouped" && config.output_form == "shards";
  if (config.output_form == "bin") {
    require_all_learned(input.reading.kind != RecordKind::kChat);
    if (input.reading.kind == RecordKind::kIds) {
      job.encoding.encode_record = [](Record& row) {
        require_all_learned(std::ranges::find(row.labels, kIgnoreIndex) == row.labels.end());
      };
    }
  }
  return job;
}

// A line every other second: how much is done, how fast, the time left.
class PreparationLines {
 public:
  void show(const PreparationProgress& p) {
    const double now = monotonic_seconds();
    if (begin_ < 0 || p.counting != counting_) {
      begin_ = shown_ = now;
      first_ = p.bytes_read;
      counting_ = p.counting;
    }
    if (now - shown_ < 2) return;
    shown_ = now;
    const double seconds = now - begin_;
    const double rate = static_cast<double>(p.bytes_read - first_) / seconds;
    const double left = static_cast<double>(p.bytes_total - p.bytes_read) / rate;
    const double share = 100.0 * static_cast<double>(p.bytes_read) /
                         static_cast<double>(std::max<int64_t>(1, p.bytes_total));
    const std::string done =
        p.counting ? std::string()
                   : cat(", ", format_count(static_cast<double>(p.tokens) / seconds), " tokens/s, ",
                         p.shards, p.shards == 1 ? " shard" : " shards");
    TESSERA_INFO(cat(p.counting ? "Counting documents: " : "Preparing: ", format("%.0f", share),
                     "%, ", format("%.1f", rate / 1e6), " MB/s of files", done, ", left ",
                     format_duration(rate > 0 ? left : -1)));
  }

 private:
  double begin_ = -1, shown_ = 0;
  int64_t first_ = 0;
  bool counting_ = false;
};

std::string summary(const PreparedManifest& manifest, bool validation) {
  int64_t shards = 0, tokens = 0, documents = 0;
  for (const PreparedShard& shard : manifest.shards) {
    if (shard.validation != validation) continue;
    ++shards;
    tokens += shard.tokens;
    documents += shard.documents;
  }
  return cat(validation ? "held out  " : "training  ", tokens, " tokens, ", documents,
             manifest.window > 0 ? " rows, " : " documents, ", shards,
             shards == 1 ? " shard\n" : " shards\n");
}

// A small share of few documents may be none.
void warn_of_nothing_held_out(const PreparationJob& job, const PreparedManifest& manifest) {
  if (job.validation_fraction <= 0) return;
  if (std::ranges::any_of(manifest.shards, &PreparedShard::validation)) return;
  TESSERA_WARN(cat("nothing is held out: ", format("%g", 100 * job.validation_fraction),
                   "% of these documents is ", manifest.window > 0 ? "no whole row" : "none",
                   "; give a larger --validation_fraction, or --validation_dataset"));
}

// The files of nanoGPT instead of the shards.
void write_bin_files(const fs::path& directory) {
  const PreparedDataset data = open_prepared_dataset(directory);
  require_all_learned(data.training.all_learned() && data.validation.all_learned());
  const int64_t vocab_size = data.manifest.vocab_size;
  write_flat_tokens(directory / "train.bin", data.training.tokens(), vocab_size);
  if (data.validation.tokens().count() > 0)
    write_flat_tokens(directory / "val.bin", data.validation.tokens(), vocab_size);
}

// Whether an earlier call had written them and was cut off while it removed the shards.
bool has_bin_files(const fs::path& directory, const PreparedManifest& manifest) {
  std::error_code ignored;
  int64_t training = 0, validation = 0;
  bool all_shards = true;
  for (const PreparedShard& shard : manifest.shards) {
    (shard.validation ? validation : training) += shard.tokens;
    all_shards = all_shards && fs::exists(directory / shard.name, ignored);
  }
  auto is_whole = [&](const char* name, int64_t tokens) {
    return tokens == 0 || fs::file_size(directory / name, ignored) ==
                              static_cast<uint64_t>(tokens) * token_width(manifest.vocab_size);
  };
  return !all_shards && is_whole("train.bin", training) && is_whole("val.bin", validation);
}

// The manifest, by which the next call goes, last.
void remove_shards(const fs::path& directory, const PreparedManifest& manifest) {
  for (const PreparedShard& shard : manifest.shards) fs::remove(directory / shard.name);
  fs::remove(directory / kPreparedManifestName);
}

}  // namespace

int prepare_data(ParsedOptions& parsed) {
  if (parsed.words.size() > 1)
    throw UsageError(cat("unexpected word '", parsed.words[1], "' behind data prepare"));
  apply_preset(parsed);
  const RunConfig& config = parsed.config;
  require_local_output("--output_dir", config.output_dir);
  DatasetNames names;
  names.dataset = config.dataset;
  names.config = config.dataset_config_name;
  names.validation = config.validation_dataset;
  const DataInput input = open_data_input(parsed, names, /*needs_tokens=*/true);
  PreparationJob job = preparation_of(config, input);
  if (input.tokenizer && input.reading.kind != RecordKind::kIds) {
    const std::string warning =
        special_name_warning(input.files.training, input.reading, *input.tokenizer);
    if (!warning.empty()) TESSERA_WARN(cat(input.name, " ", warning));
  }
  PreparationLines lines;
  job.progress = [&](const PreparationProgress& p) { lines.show(p); };

  catch_interruptions("the shards that are whole stay; the same command goes on behind them");
  const fs::path directory = config.output_dir;
  try {
    DirectoryLock lock(directory, {.job = "data prepare"});
    ThreadPool pool(threads_of(parsed));
    const PreparedManifest manifest = prepare_dataset(directory, job, pool);
    warn_of_nothing_held_out(job, manifest);
    std::string text = summary(manifest, false) + summary(manifest, true);
    if (manifest.dropped > 0) text += cat("dropped   ", manifest.dropped, " tokens\n");
    if (manifest.bad_lines > 0) text += cat("broken    ", manifest.bad_lines, " lines\n");
    if (config.output_form == "bin") {
      if (!has_bin_files(directory, manifest)) write_bin_files(directory);
      remove_shards(directory, manifest);
    } else {
      open_prepared_dataset(directory);  // what an earlier call had written is still there
    }
    std::printf("%s", text.c_str());
  } catch (const DirectoryInUse&) {
    throw UserError(cat("another process prepares '", directory.string(),
                        "': wait for its end, or give another --output_dir"));
  } catch (const Interrupted&) {
    throw UserError(
        cat("interrupted; the same command goes on behind the shards that are whole "
            "in '",
            directory.string(), "'"));
  }
  return 0;
}

}  // namespace tessera
