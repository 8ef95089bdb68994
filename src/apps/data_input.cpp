#include "apps/data_input.h"

#include <utility>

#include "apps/named_models.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/find_chat_template.h"
#include "options/remote_options.h"

namespace tessera {

EncodingJob DataInput::encoding(bool append_eos) const {
  EncodingJob job = encoding_of(reading.kind, tokenizer.get(), encoder.get(), vocab_size);
  job.name = name;
  if (!append_eos) job.end_of_text = -1;
  return job;
}

DataInput open_data_input(const ParsedOptions& parsed, const DatasetNames& names,
                          bool needs_tokens) {
  const RunConfig& config = parsed.config;
  DataInput input;
  input.name = cat("'", names.dataset, "'");
  input.reading.skip_bad_lines = config.on_bad_line == "skip";
  if (!config.text_field.empty()) {
    input.reading.text_field = config.text_field;
    input.reading.text_is_wanted = true;
  }
  input.reading.remote = remote_options(config);
  input.files = find_dataset_files(names, input.reading.remote);
  const auto& files = input.files.training.empty() ? input.files.validation : input.files.training;
  input.reading.kind = detect_kind(files, input.reading);
  const bool ids = input.reading.kind == RecordKind::kIds;
  if (parsed.is_given("tokenizer") || config.preset != "none") {
    const std::string named = fetch_named_tokenizer(config.tokenizer, config);
    input.tokenizer = load_tokenizer(named);
    input.vocab_size = input.tokenizer->vocab_size();
    if (input.reading.kind == RecordKind::kChat) {
      auto chat = find_chat_template(named, *input.tokenizer, config.chat_template);
      if (chat) {
        if (std::string warning = answer_end_warning(*input.tokenizer, *chat); !warning.empty())
          TESSERA_WARN(warning);
      }
      input.encoder = std::make_unique<RecordEncoder>(*input.tokenizer, std::move(chat));
    }
  }
  if (ids && parsed.is_given("vocab_size")) input.vocab_size = config.vocab_size;
  input.reading.vocab_size = input.vocab_size;
  if (needs_tokens && !input.has_tokens()) {
    throw UsageError(ids ? "rows of ids need --tokenizer, the one that they were made with, or "
                           "--vocab_size"
                         : "--tokenizer is required: a file, a directory or 'byte'");
  }
  return input;
}

int threads_of(const ParsedOptions& parsed) {
  return parsed.config.threads ? static_cast<int>(*parsed.config.threads) : available_cores();
}

}  // namespace tessera
