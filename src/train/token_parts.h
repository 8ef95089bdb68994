#pragma once
#include <optional>
#include <string>

#include "train/training_data.h"

namespace tessera {

// How the files of a part are read.
DocumentReaderOptions reading_options(const RunConfig& config, RecordKind kind, int64_t vocab_size);

// --cache_dir, for what is written there now. UserError where it cannot be.
void make_cache_directory(const RunConfig& config);

// What the files hold (detect_kind()); nothing where they are tokens already (.bin).
std::optional<RecordKind> kind_of_files(const RunConfig& config,
                                        const std::vector<RemoteEntry>& files);

// Tokens of files, from the cache if it has them. `what` they are and the `name` of the data set,
// for messages. `encoder`: null where the files are ids. UserError as of reading them.
TokenPart open_token_part(const std::string& what, const std::string& name,
                          const std::vector<RemoteEntry>& files, RecordKind kind,
                          const RunConfig& config, const TrainingData& data, int64_t vocab_size,
                          ThreadPool& pool);
// Files of ids that other programs made.
TokenPart open_token_file(const std::string& what, const std::vector<RemoteEntry>& files,
                          const RunConfig& config, int64_t vocab_size);
// The training and the validation tokens of what `tessera data prepare` wrote. UserError where the
// ids do not fit the model's vocabulary, or the tokenizer, where there is one, is another.
struct PreparedParts {
  TokenPart training, validation;  // of no tokens where there is none
};
PreparedParts open_prepared_parts(const std::string& directory, const Tokenizer* tokenizer,
                                  int64_t vocab_size);
TokenPart synthetic_part(const RunConfig& config, int64_t vocab_size, int64_t context);

// What --packing says; nothing for auto.
std::optional<Packing> given_packing(const RunConfig& config);
// How a part is cut into samples: that, or what is usual for its kind.
Packing packing_of(const RunConfig& config, const TokenPart& part);
// UserError where there is too little of it for one sample.
std::shared_ptr<const SampleSource> samples_of(const TokenPart& part, Packing packing,
                                               int64_t context, int32_t filler,
                                               const RunConfig& config, const std::string& name,
                                               std::vector<std::string>& warnings);

// Moves the last part of the training data to `validation`, where both are enough for a sample.
void hold_out(double fraction, Packing packing, int64_t context, TokenPart& training,
              TokenPart& validation);

// Whether any token is a target. Reads up to the first that is.
bool has_targets(TokenView tokens);
// Of conversations of which none of the first has a message of the assistant's, whose messages
// alone are learned: a sentence that says so and names their roles, with a blank in front. Else "".
std::string missing_answers(const std::vector<RemoteEntry>& files, RecordKind kind,
                            const RunConfig& config);

// Bytes of text that the tokens from the second on stand for: those around a document for none.
int64_t predicted_bytes(TokenView tokens, const Tokenizer& tokenizer);

}  // namespace tessera
