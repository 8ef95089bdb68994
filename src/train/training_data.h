#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "data/dataset_files.h"
#include "data/prepared_dataset.h"
#include "data/record_encoder.h"
#include "data/sample_source.h"
#include "data/stream_lane.h"
#include "data/synthetic_tokens.h"
#include "data/token_cache.h"
#include "data/token_file.h"
#include "options/run_config.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// Tokens to train on, or held out, and what holds them: one of the four.
struct TokenPart {
  std::optional<TokenCache> cache;  // of text, rows of ids or conversations
  std::shared_ptr<const PreparedDataset> prepared;
  std::optional<TokenFile> file;
  std::unique_ptr<const SyntheticTokens> synthetic;
  TokenView tokens;           // all that is held, or some of it; none where there is nothing
  DocumentView documents;     // the same, or those of all; of a cache or of prepared data
  bool are_documents = true;  // else rows cut of joined text, of which end-of-text tells documents
  RecordKind kind = RecordKind::kText;
  uint64_t hash = 0;  // of all that is held
};

// Where the data sets of a job are: what is told from one rank to the others.
struct DataSource {
  std::string name;  // as it was given
  double weight = 1;
  std::string prepared;  // the directory, if `tessera data prepare` wrote it; files are then none
  std::string prepared_validation;  // the same of what is held out by name
  DatasetFiles files;
};

// The data of a job as samples, or as a stream.
struct TrainingData {
  std::unique_ptr<Tokenizer> tokenizer;  // null where the data are ids and there is none
  std::unique_ptr<RecordEncoder> encoder;
  std::vector<DataSource> sources;  // of --dataset, or of the parts of a mix
  std::vector<TokenPart> parts;     // training data of each source; none of a stream
  TokenPart validation;
  std::vector<RemoteEntry> validation_files;  // that are read; none where a part is held out
  std::vector<std::string> warnings;          // the same on all ranks: one of them gives them
  int64_t validation_bytes = 0;               // of text behind the predicted validation tokens

  std::shared_ptr<const SampleSource> training_samples;    // null: there is none, or a stream
  std::optional<StreamSettings> stream;                    // --streaming
  int64_t lane_reading_bytes = 0;                          // of a lane of it: reading_bytes()
  std::shared_ptr<const SampleSource> validation_samples;  // null: nothing is held out

  bool has_training() const { return training_samples || stream; }
  int64_t training_tokens() const;
  // Of what is trained on.
  uint64_t training_hash() const;
  // Of a stream, also as checkpoints once had it: without the chat template, and with what became
  // of broken lines.
  std::vector<uint64_t> known_stream_hashes() const;
};

// Whether --tokenizer is needed to read the data: not for ids.
bool data_need_tokenizer(const RunConfig& config);
// Whether --tokenizer names one that can be opened.
bool is_tokenizer_there(const RunConfig& config);

// Finds the files of all data sets that the options name; none where the data are in no files that
// are looked for (--use_synthetic_data, .bin). What a server lists costs requests: where
// `names_are_remote`, one rank asks and tells the others by these texts.
std::vector<DataSource> find_data_sources(const RunConfig& config);
// Whether any of them has data to validate on.
bool has_validation(const std::vector<DataSource>& sources);
// Holds out the last --validation_fraction of the files of a stream that has none to validate on:
// of documents that nobody has counted there is no last part. False where there are too few.
bool hold_out_files(double fraction, DataSource& source);
// TrainingData::lane_reading_bytes before there is a job: none of data on servers, or that cannot
// be read here.
int64_t reading_bytes_here(const RunConfig& config);
// Those directories of this machine in which files of ids (.bin) of the training data are.
std::vector<std::filesystem::path> token_directories(const RunConfig& config);
bool names_are_remote(const RunConfig& config);
std::string to_text(const std::vector<DataSource>& sources);
std::vector<DataSource> data_sources_from_text(std::string_view text);

// --use_synthetic_data: random tokens, 100,000 sequences, and nothing is held out. Else a --dataset
// that is a .bin file, or a directory with train.bin (its own path, or --dataset_dir/--dataset), is
// ids, with val.bin beside it held out; or what `tessera data prepare` wrote (so may be what is
// held out by name); else it is `sources`: what their files hold (text, rows of ids, conversations)
// is read, by --streaming as a stream, or else tokenized into caches (or taken from them) and cut
// into samples as --packing says. Without files to validate on, the last --validation_fraction of
// the training data is held out: of tokens, of documents where samples are made of whole ones, of
// files of a stream. `tokenizer` is that of --tokenizer, which is opened if it is null and needed
// or there. With --fast_validation the last of several validation files stands for all.
// --max_dataset_len keeps the first so many training windows. UserError: no data, a tokenizer that
// does not fit --vocab_size, a context longer than the data, and what the readers report.
TrainingData prepare_training_data(const RunConfig& config, std::vector<DataSource> sources,
                                   std::unique_ptr<Tokenizer> tokenizer, int64_t vocab_size,
                                   int64_t context, ThreadPool& pool);

}  // namespace tessera
