#include "data/preparation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interruption.h"
#include "base/random.h"
#include "base/text.h"
#include "data/dataset_files.h"
#include "data/prepared_dataset.h"
#include "data/token_cache.h"
#include "data/token_cache_format.h"
#include "data/token_cache_writer.h"

namespace tessera {
namespace {

constexpr uint64_t kHoldOutStream = stream_of("data.validation");

// Some of the documents of some files, one stage after the other.
struct Stage {
  const std::vector<RemoteEntry>* files = nullptr;
  bool validation = false;  // all of them are held out
  bool draws = false;       // some of them are
  int64_t end = -1;      // number of the document before which it ends; -1: it goes on to the end
  bool goes_on = false;  // behind the stage before it, with the same reader
};

// A part of the output: the shard that is being written, and the row.
class PartWriter {
 public:
  PartWriter(const std::filesystem::path& directory, const PreparationJob& job, bool validation,
             uint64_t fingerprint)
      : directory_(directory), job_(job), validation_(validation), fingerprint_(fingerprint) {}

  int64_t tokens() const { return writer_ ? writer_->tokens() : 0; }

  void add(std::span<const int32_t> ids, std::span<const uint8_t> learned, int64_t text_bytes,
           bool ends_document) {
    if (job_.window == 0) {
      open_shard().add(ids, learned, text_bytes, ends_document);
      return;
    }
    text_bytes_ += text_bytes;
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    learned_.insert(learned_.end(), learned.begin(), learned.end());
    learned_.resize(ids_.size(), 1);
    const auto window = static_cast<size_t>(job_.window);
    size_t begin = 0;
    for (; ids_.size() - begin >= window; begin += window) {
      open_shard().add(std::span(ids_).subspan(begin, window),
                       std::span(learned_).subspan(begin, window), std::exchange(text_bytes_, 0),
                       true);
    }
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(begin));
    learned_.erase(learned_.begin(), learned_.begin() + static_cast<ptrdiff_t>(begin));
  }

  // Drops what is left of a row; how many tokens that was.
  int64_t end_group() {
    const auto dropped = static_cast<int64_t>(ids_.size());
    ids_.clear();
    learned_.clear();
    text_bytes_ = 0;
    return dropped;
  }

  // Ends the shard, if one is open.
  void end_shard(PreparedManifest& manifest) {
    if (!writer_ || writer_->tokens() == 0) {
      writer_.reset();
      return;
    }
    writer_->commit();
    writer_.reset();
    // Read back as it will be: what the disk did not keep is noticed now.
    const auto file = std::make_shared<ReadFile>(directory_ / name_);
    const TokenCache shard(file, TokenCache::Check::kContent);
    manifest.shards.push_back({name_, validation_, shard.tokens().count(), shard.documents(),
                               shard.text_bytes(), file->size(), shard.hash()});
    ++number_;
  }
  void skip_shards(int64_t count) { number_ = count; }

 private:
  TokenCacheWriter& open_shard() {
    if (!writer_) {
      const char* folder = !job_.folders ? "" : validation_ ? "val/" : "train/";
      const char* word = validation_ && !job_.folders ? "validation" : "shard";
      name_ = cat(folder, word, "-", format("%05lld", static_cast<long long>(number_)), ".bin");
      if (job_.folders) make_directories(directory_ / folder);
      writer_.emplace(directory_ / name_, job_.encoding.vocab_size, fingerprint_);
    }
    return *writer_;
  }

  const std::filesystem::path& directory_;
  const PreparationJob& job_;
  bool validation_;
  uint64_t fingerprint_;
  std::string name_;
  int64_t number_ = 0;
  std::optional<TokenCacheWriter> writer_;
  std::vector<int32_t> ids_;  // of the row that is not complete
  std::vector<uint8_t> learned_;
  int64_t text_bytes_ = 0;  // of text that no row has been counted for
};

class Preparation {
 public:
  Preparation(const std::filesystem::path& directory, const PreparationJob& job, ThreadPool& pool,
              PreparedManifest& manifest)
      : directory_(directory),
        job_(job),
        pool_(pool),
        manifest_(manifest),
        parts_{{directory, job, false, manifest.fingerprint},
               {directory, job, true, manifest.fingerprint}} {
    for (const PreparedShard& shard : manifest.shards) ++shards_before_[shard.validation];
    for (bool validation : {false, true})
      parts_[validation].skip_shards(shards_before_[validation]);
  }

  void run() {
    plan_stages();
    while (manifest_.place.stage < std::ssize(stages_)) run_stage();
    if (preparation_fingerprint(job_) != manifest_.fingerprint) {
      throw UserError(cat("data set ", job_.encoding.name,
                          " has changed while it was read: delete '", directory_.string(),
                          "', and prepare it again"));
    }
    int64_t tokens = 0;
    for (const PreparedShard& shard : manifest_.shards) tokens += shard.tokens;
    if (tokens == 0) {
      throw UserError(
          cat("data set ", job_.encoding.name, " is empty: there is ",
              manifest_.dropped > 0 ? "not enough for one row of it" : "nothing in it"));
    }
    std::ranges::stable_sort(manifest_.shards, {}, &PreparedShard::validation);
    manifest_.complete = true;
    manifest_.place = {};
    if (job_.folders) write_folders();
    save();
  }

  void save() { write_file_atomic(directory_ / kPreparedManifestName, to_json(manifest_)); }

 private:
  void plan_stages() {
    const bool held_out = job_.validation_fraction > 0;
    const bool last = held_out && job_.split == PreparationJob::Split::kLast;
    if (!job_.training.empty()) {
      Stage stage{&job_.training};
      stage.draws = held_out && !last;
      if (last) {
        if (manifest_.place.documents < 0) count_documents();
        const int64_t all = manifest_.place.documents;
        stage.end = all - std::llround(job_.validation_fraction * static_cast<double>(all));
      }
      stages_.push_back(stage);
      if (last) stages_.push_back({&job_.training, true, false, -1, true});
    }
    if (!job_.validation.empty()) stages_.push_back({&job_.validation, true});
    for (const RemoteEntry& file : job_.training)
      training_bytes_ += static_cast<int64_t>(file.size);
    bytes_total_ = training_bytes_;
    for (const RemoteEntry& file : job_.validation) bytes_total_ += static_cast<int64_t>(file.size);
  }

  bool is_text() const { return job_.reading.kind == RecordKind::kText; }

  void count_documents() {
    DocumentReader reader(job_.training, job_.reading);
    int64_t count = 0;
    std::string text;
    Record record;
    for (int64_t looked = 0;; ++looked) {
      if (looked % 1024 == 0) {
        check_interruption();
        report(&reader, true);
      }
      if (is_text()) {
        const TextPart part = reader.next_part(text);
        if (part == TextPart::kNone) break;
        count += part == TextPart::kLast;
      } else {
        if (!reader.next(record)) break;
        ++count;
      }
    }
    manifest_.place.documents = count;
    save();
  }

  void run_stage() {
    PreparedManifest::Place& place = manifest_.place;
    const Stage& stage = stages_[static_cast<size_t>(place.stage)];
    bytes_before_ = stage.files == &job_.validation ? training_bytes_ : 0;
    DocumentReader reader(*stage.files, job_.reading);
    if (!place.position.empty()) reader.seek(place.position);
    int64_t read = place.document;  // documents that the reader has come to the end of
    EncodingJob encoding = job_.encoding;
    if (is_text()) {
      encoding.documents = [&](std::string& text) {
        if (read == stage.end) return TextPart::kNone;
        const TextPart part = reader.next_part(text);
        read += part == TextPart::kLast;
        return part;
      };
    } else {
      encoding.records = [&](Record& record) {
        if (read == stage.end || !reader.next(record)) return false;
        ++read;
        return true;
      };
    }
    // With it goes what belongs to it: the reader itself is ahead of what has been written.
    const int64_t bad_lines_before = manifest_.bad_lines;
    auto here = [&] { return cat(bad_lines_before + reader.bad_lines(), ":", reader.position()); };
    encoding.position = here;
    if (job_.window > 0) encoding.group = job_.window_documents;

    TokenEncoder encoder(encoding, pool_);
    std::vector<EncodedSegment> batch;
    int64_t group = 0;  // documents in the group of rows
    while (encoder.next(batch)) {
      for (const EncodedSegment& segment : batch) {
        add(stage, segment, group);
        if (segment.position.empty() || group != 0) continue;
        if (std::max(parts_[0].tokens(), parts_[1].tokens()) < job_.shard_tokens) continue;
        end_shards(segment.position);
        report(&reader, false);
      }
      report(&reader, false);
    }
    end_group();
    const std::string end = here();
    ++place.stage;
    const bool goes_on =
        place.stage < std::ssize(stages_) && stages_[static_cast<size_t>(place.stage)].goes_on;
    if (!goes_on) place.document = 0;
    end_shards(goes_on ? end : end.substr(0, end.find(':') + 1));
  }

  void add(const Stage& stage, const EncodedSegment& segment, int64_t& group) {
    const std::span<const int32_t> ids = segment.ids;
    const std::span<const uint8_t> learned = segment.learned;
    PreparedManifest::Place& place = manifest_.place;
    size_t begin = 0;
    for (const EncodedSegment::Part& part : segment.parts) {
      const size_t size = part.end - begin;
      const bool held_out = stage.validation ||
                            (stage.draws && random_uniform(job_.seed, kHoldOutStream,
                                                           static_cast<uint64_t>(place.document)) <
                                                job_.validation_fraction);
      parts_[held_out].add(ids.subspan(begin, size),
                           learned.empty() ? learned : learned.subspan(begin, size),
                           part.text_bytes, part.ends_document);
      begin = part.end;
      done_.text_bytes += part.text_bytes;
      done_.tokens += static_cast<int64_t>(size);
      if (!part.ends_document) continue;
      ++place.document;
      ++done_.documents;
      if (job_.window > 0 && ++group == job_.window_documents) {
        end_group();
        group = 0;
      }
    }
  }

  void end_group() {
    for (PartWriter& part : parts_) manifest_.dropped += part.end_group();
  }

  // `position`: broken lines, a colon, and where the reader goes on.
  void end_shards(const std::string& position) {
    for (PartWriter& part : parts_) part.end_shard(manifest_);
    const size_t colon = position.find(':');
    manifest_.bad_lines = std::stoll(position.substr(0, colon));
    manifest_.place.position = position.substr(colon + 1);
    save();
  }

  // Each folder is a prepared data set of its own.
  void write_folders() {
    for (bool validation : {false, true}) {
      PreparedManifest part = manifest_;
      std::erase_if(part.shards, [&](auto& shard) { return shard.validation != validation; });
      if (part.shards.empty()) continue;
      std::filesystem::path folder = directory_ / (validation ? "val" : "train");
      for (PreparedShard& shard : part.shards) {
        shard.name = std::filesystem::path(shard.name).filename();
        shard.validation = false;
      }
      write_file_atomic(folder / kPreparedManifestName, to_json(part));
    }
  }

  void report(const DocumentReader* reader, bool counting) {
    if (!job_.progress) return;
    done_.counting = counting;
    done_.bytes_read = bytes_before_ + reader->bytes_read();
    done_.bytes_total = counting ? reader->bytes_total() : bytes_total_;
    done_.shards = std::ssize(manifest_.shards);
    job_.progress(done_);
  }

  const std::filesystem::path& directory_;
  const PreparationJob& job_;
  ThreadPool& pool_;
  PreparedManifest& manifest_;
  PartWriter parts_[2];  // training, held out
  int64_t shards_before_[2] = {};
  std::vector<Stage> stages_;
  int64_t training_bytes_ = 0, bytes_total_ = 0, bytes_before_ = 0;
  PreparationProgress done_;
};

// What an earlier call that was killed was writing.
void remove_half_written(const std::filesystem::path& directory) {
  std::error_code ignored;
  for (const auto& folder : {directory, directory / "train", directory / "val"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename();
      if (name.find(".bin.tmp-") == std::string::npos && !name.starts_with("manifest.json.tmp-"))
        continue;
      std::filesystem::remove(entry.path(), ignored);
    }
  }
}

// The manifest of an earlier call, if there was one.
std::optional<PreparedManifest> earlier(const std::filesystem::path& directory,
                                        uint64_t fingerprint) {
  std::error_code ignored;
  if (is_there(directory / kPreparedManifestName)) {
    PreparedManifest manifest = read_prepared_manifest(directory);
    if (manifest.fingerprint == fingerprint) return manifest;
    throw UserError(cat("'", directory.string(),
                        "' holds the preparation of other data, or with another tokenizer or other "
                        "options: give another --output_dir, or delete that one"));
  }
  if (is_there(directory / "train.bin")) {
    throw UserError(cat("'", directory.string(),
                        "' holds finished files of ids ('train.bin'): delete it to prepare them "
                        "again, or give another --output_dir"));
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    if (name == "run.lock" || name.find(".tmp-") != std::string::npos) continue;
    throw UserError(cat("'", directory.string(), "' holds something else ('", name,
                        "'): give another --output_dir"));
  }
  return std::nullopt;
}

}  // namespace

uint64_t preparation_fingerprint(const PreparationJob& job) {
  uint64_t hash = dataset_fingerprint(job.training, job.reading, job.tokenizer_fingerprint);
  hash = hash_combine(hash,
                      dataset_fingerprint(job.validation, job.reading, job.tokenizer_fingerprint));
  if (job.encoder_fingerprint != 0) hash = hash_combine(hash, job.encoder_fingerprint);
  hash = hash_combine(hash, std::bit_cast<uint64_t>(job.validation_fraction));
  if (job.validation_fraction > 0) {
    hash = hash_combine(hash, static_cast<uint64_t>(job.split));
    if (job.split == PreparationJob::Split::kRandom) hash = hash_combine(hash, job.seed);
  }
  for (int64_t number : {job.shard_tokens, job.window, job.window > 0 ? job.window_documents : 0,
                         int64_t{job.encoding.end_of_text}, int64_t{job.folders}})
    hash = hash_combine(hash, static_cast<uint64_t>(number));
  return hash;
}

PreparedManifest prepare_dataset(const std::filesystem::path& directory, const PreparationJob& job,
                                 ThreadPool& pool) {
  TESSERA_CHECK(job.shard_tokens > 0 && job.window >= 0 && job.window_documents > 0);
  const uint64_t fingerprint = preparation_fingerprint(job);
  make_directories(directory);
  std::optional<PreparedManifest> manifest = earlier(directory, fingerprint);
  remove_half_written(directory);
  if (manifest && manifest->complete) return *manifest;
  if (manifest) {  // what was written is still there
    PreparedTokens(directory, manifest->shards, manifest->vocab_size, TokenCache::Check::kSizes);
  } else {
    manifest.emplace();
    manifest->fingerprint = fingerprint;
    manifest->tokenizer = job.tokenizer;
    manifest->tokenizer_fingerprint = job.tokenizer_fingerprint;
    manifest->vocab_size = job.encoding.vocab_size;
    manifest->end_of_text = job.end_of_text;
    manifest->window = job.window;
    for (const auto* files : {&job.training, &job.validation}) {
      for (const RemoteEntry& file : *files) {
        if (manifest->sources.size() < kMostNamedSources)
          manifest->sources.push_back({shown_name(file), file.size});
        else
          ++manifest->more_sources;
      }
    }
  }
  Preparation preparation(directory, job, pool, *manifest);
  preparation.save();
  preparation.run();
  return *manifest;
}

void write_flat_tokens(const std::filesystem::path& path, TokenView tokens, int64_t vocab_size) {
  AtomicFile file(path);
  const uint32_t width = token_width(vocab_size);
  constexpr int64_t kAtOnce = 1 << 16;
  std::vector<int32_t> ids(static_cast<size_t>(std::min(tokens.count(), kAtOnce)));
  std::string bytes;
  for (int64_t begin = 0; begin < tokens.count(); begin += kAtOnce) {
    check_interruption();
    const std::span part =
        std::span(ids).first(static_cast<size_t>(std::min(kAtOnce, tokens.count() - begin)));
    tokens.copy(begin, part);
    bytes.resize(part.size() * width);
    for (size_t i = 0; i < part.size(); ++i) std::memcpy(bytes.data() + i * width, &part[i], width);
    file.write(bytes);
  }
  file.commit();
}

}  // namespace tessera
