#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "data/document_reader.h"
#include "data/prepared_manifest.h"
#include "data/token_encoder.h"
#include "data/token_view.h"

namespace tessera {

struct PreparationProgress {
  bool counting = false;  // documents are counted, so that the last of them can be held out
  int64_t bytes_read = 0, bytes_total = 0;  // of the files as they are stored
  // Of this process: what was there before is not counted.
  int64_t documents = 0, text_bytes = 0, tokens = 0;
  int64_t shards = 0;  // written, those of before included
};

// What is prepared, and how.
struct PreparationJob {
  // Without its source, position and group: name, vocabulary, ids around a document, encode, cut.
  EncodingJob encoding;
  std::string tokenizer;  // for people
  uint64_t tokenizer_fingerprint = 0;
  uint64_t encoder_fingerprint = 0;  // of what makes ids of conversations, besides; 0: nothing does
  int32_t end_of_text = 0;           // of the tokenizer, whether it follows documents or not

  std::vector<RemoteEntry> training, validation;
  DocumentReaderOptions reading;
  // Of the documents of `training`, so many are held out: each by a draw of its own, a function of
  // seed and number, or the last ones.
  enum class Split : uint8_t { kRandom, kLast };
  double validation_fraction = 0;
  Split split = Split::kRandom;
  uint64_t seed = 0;

  int64_t shard_tokens = 100'000'000;
  // > 0: the tokens of every `window_documents` documents are joined and cut into rows of so many;
  // what is left over is dropped.
  int64_t window = 0, window_documents = 1000;
  bool folders = false;  // shards lie in folders train and val, each a prepared data set as well

  std::function<void(const PreparationProgress&)> progress;  // now and then, on the calling thread
};

// Of all that decides what the shards hold: files, reader, tokenizer, splits, sizes. UserError if a
// file is missing.
uint64_t preparation_fingerprint(const PreparationJob& job);

// Writes the tokens of the documents to `directory` as shards (token_cache.h), each of about
// `shard_tokens` tokens and of whole documents, and a manifest. The same files for any number of
// threads.
//
// A shard is whole or not there; the manifest is written anew behind each. Where the work was cut
// off, however that was, the next call goes on behind the last shard, and what it leaves is the
// same to the byte. If all is there already, nothing is done. The caller keeps the directory to one
// process.
//
// UserError: the directory holds something else, or the preparation of other data; there is no
// document; what the readers and the encoder report. Interrupted when that is requested.
PreparedManifest prepare_dataset(const std::filesystem::path& directory, const PreparationJob& job,
                                 ThreadPool& pool);

// Writes the ids alone, one after the other, as nanoGPT has them: 2 bytes each where the vocabulary
// has at most 65536 entries, else 4. UserError when the file cannot be written.
void write_flat_tokens(const std::filesystem::path& path, TokenView tokens, int64_t vocab_size);

}  // namespace tessera
