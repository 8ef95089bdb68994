#pragma once
#include <filesystem>
#include <span>

#include "options/run_config.h"
#include "remote/remote_entry.h"

namespace tessera {

// The tokenizer that a run makes of its own text where none is given: byte-level BPE in
// --cache_dir, under a name that is a function of the text's files and of the vocabulary's size.
// Any later run of the same files takes the same one.

// Its file, "CACHE_DIR/tokenizer-HASH.json", of path, size and time of change of every file, of how
// they are read, and of --vocab_size. Nothing is made. UserError where a file is missing.
std::filesystem::path own_tokenizer_path(const RunConfig& config,
                                         std::span<const RemoteEntry> files);

// Whether --tokenizer has such a name.
bool is_own_tokenizer(const RunConfig& config);

// Makes the tokenizer that --tokenizer names if it is that of the training text of --dataset, and
// is not there or damaged; says in one line of the log which it is. Learned is
// kTokenizerSampleBytes of the text at most: of every file the same share, from its beginning.
// UserError: the text cannot be read or is empty, the file cannot be written. Interrupted when that
// is requested; nothing is left of it.
inline constexpr int64_t kTokenizerSampleBytes = int64_t{64} << 20;
void make_own_tokenizer(const RunConfig& config, int threads);

}  // namespace tessera
