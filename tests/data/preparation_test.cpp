#include "data/preparation.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <map>
#include <optional>

#include "base/ignore_index.h"
#include "base/interruption.h"
#include "base/random.h"
#include "data/dataset_files.h"
#include "data/prepared_dataset.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

constexpr int32_t kEndOfText = 256;

std::vector<std::string> documents(uint64_t seed, size_t count) {
  std::vector<std::string> result(count);
  for (uint64_t d = 0; d < count; ++d) {
    const uint64_t size = 1 + random_below(seed, 0, d, d % 50 == 7 ? 90000 : 1500);
    for (uint64_t i = 0; result[d].size() < size; ++i)
      result[d] += static_cast<char>('a' + random_below(seed, d + 1, i, 26));
  }
  return result;
}

std::string json_lines(const std::vector<std::string>& documents) {
  std::string lines;
  for (const auto& text : documents) lines += cat("{\"text\": \"", text, "\"}\n");
  return lines;
}

std::map<std::string, std::string> files_of(const std::filesystem::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file())
      files[std::filesystem::relative(entry.path(), directory)] = read_file(entry.path());
  return files;
}

std::vector<std::string> texts_of(const PreparedTokens& tokens) {
  std::vector<std::string> texts;
  tokens.document_view().for_each([&](TokenRange range) {
    std::vector<int32_t> ids(static_cast<size_t>(range.length()));
    tokens.tokens().copy(range.begin, ids);
    EXPECT_EQ(ids.back(), kEndOfText);
    texts.emplace_back(ids.begin(), ids.end() - 1);
  });
  return texts;
}

class PreparationTest : public testing::Test {
 protected:
  // A byte is an id.
  PreparationJob job(const std::vector<std::filesystem::path>& training,
                     const std::vector<std::filesystem::path>& validation = {}) {
    PreparationJob result;
    result.encoding.name = "'words'";
    result.encoding.vocab_size = 257;
    result.encoding.end_of_text = result.end_of_text = kEndOfText;
    result.encoding.encode = [](std::string_view text, std::vector<int32_t>& ids) {
      for (char c : text) ids.push_back(static_cast<unsigned char>(c));
    };
    result.encoding.cut = [](std::string_view, size_t from) { return from; };
    result.tokenizer = "bytes";
    result.training = local_entries(training);
    result.validation = local_entries(validation);
    result.shard_tokens = 150'000;
    return result;
  }
  PreparedManifest prepare(const std::string& name, const PreparationJob& j, int threads = 1) {
    ThreadPool pool(threads);
    return prepare_dataset(directory_ / name, j, pool);
  }
  ScratchDirectory directory_;
};

TEST_F(PreparationTest, OfVeryManyFilesTheFirstAreNamed) {
  auto j = job({directory_.write("a.jsonl", json_lines({"a"}))});
  j.training.resize(kMostNamedSources + 5, j.training[0]);
  const PreparedManifest manifest = prepare("out", j);
  EXPECT_EQ(manifest.sources.size(), kMostNamedSources);
  EXPECT_EQ(manifest.more_sources, 5);
  EXPECT_EQ(manifest.shards.at(0).documents, static_cast<int64_t>(kMostNamedSources) + 5);
  EXPECT_EQ(read_prepared_manifest(directory_ / "out"), manifest);
}

TEST_F(PreparationTest, HoldsEveryDocumentInShardsOfAboutTheSizeAskedFor) {
  const auto a = documents(1, 600), b = documents(2, 300), held_out = documents(3, 200);
  const auto j =
      job({directory_.write("a.jsonl", json_lines(a)), directory_.write("b.jsonl", json_lines(b))},
          {directory_.write("v.jsonl", json_lines(held_out))});
  const PreparedManifest manifest = prepare("out", j);
  EXPECT_TRUE(manifest.complete);
  EXPECT_TRUE(is_prepared_dataset(directory_ / "out"));
  EXPECT_FALSE(is_prepared_dataset(directory_.path()));
  const PreparedDataset data =
      open_prepared_dataset(directory_ / "out", TokenCache::Check::kContent);
  auto all = a;
  all.insert(all.end(), b.begin(), b.end());
  EXPECT_EQ(texts_of(data.training), all);
  EXPECT_EQ(texts_of(data.validation), held_out);
  ASSERT_GE(manifest.shards.size(), 6u);
  int64_t training = 0;
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    const PreparedShard& shard = manifest.shards[i];
    training += shard.validation ? 0 : shard.tokens;
    EXPECT_LE(shard.tokens, 150'000 + 100'000 + 70'000);  // the longest document, a segment
    const bool last =
        i + 1 == manifest.shards.size() || manifest.shards[i + 1].validation != shard.validation;
    if (!last) {
      EXPECT_GE(shard.tokens, 150'000);
    }
  }
  EXPECT_EQ(training, data.training.tokens().count());
  EXPECT_EQ(manifest.shards[0].name, "shard-00000.bin");
  EXPECT_EQ(manifest.shards.back().name, "validation-00001.bin");
  EXPECT_EQ(manifest.sources.size(), 3u);
  EXPECT_TRUE(data.training.all_learned());

  // Slices of documents and tokens reach over the ends of shards.
  const DocumentView view = data.training.document_view();
  EXPECT_EQ(view.slice(100, 700).count(), 700);
  EXPECT_EQ(view.slice(100, 700)[50], view[150]);
  const int64_t seam = manifest.shards[0].tokens;
  std::vector<int32_t> around(10), one_by_one;
  data.training.tokens().copy(seam - 5, around);
  for (int64_t t = seam - 5; t < seam + 5; ++t) {
    std::vector<int32_t> id(1);
    data.training.tokens().copy(t, id);
    one_by_one.push_back(id[0]);
  }
  EXPECT_EQ(around, one_by_one);
}

TEST_F(PreparationTest, SameFilesForAnyNumberOfThreads) {
  auto j = job({directory_.write("a.jsonl", json_lines(documents(1, 900)))});
  j.validation_fraction = 0.1;
  prepare("1", j);
  const auto expected = files_of(directory_ / "1");
  EXPECT_GE(expected.size(), 6u);
  for (int threads : {2, 5}) {
    prepare(cat(threads), j, threads);
    EXPECT_TRUE(files_of(directory_ / cat(threads)) == expected) << threads << " threads";
  }
}

// Ends the process at the so-manieth call of encode(), or report of progress.
void prepare_and_be_killed(const std::filesystem::path& output, PreparationJob j, int encoded,
                           int reported) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::atomic<int> encodings_left{encoded}, reports_left{reported};
    j.encoding.encode = [&, encode = j.encoding.encode](auto text, auto& ids) {
      if (encodings_left-- == 0) ::raise(SIGKILL);
      encode(text, ids);
    };
    j.progress = [&](const PreparationProgress&) {
      if (reports_left-- == 0) ::raise(SIGKILL);
    };
    {
      ThreadPool pool(2);
      prepare_dataset(output, j, pool);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
}

TEST_F(PreparationTest, WhatIsKilledGoesOnBehindTheLastWholeShard) {
  const auto text = documents(1, 350);
  std::string separated;
  for (const auto& document : text) separated += document + "\n<|endoftext|>\n";
  const auto lines = directory_.write("a.jsonl", json_lines(text));
  const auto plain = directory_.write("b.txt", separated);
  const auto held_out = directory_.write("v.jsonl", json_lines(documents(3, 250)));
  using Split = PreparationJob::Split;
  int number = 0;
  for (auto [fraction, split, window] : {std::tuple{0.0, Split::kRandom, 0},
                                         {0.2, Split::kRandom, 0},
                                         {0.2, Split::kLast, 0},
                                         {0.2, Split::kRandom, 100},
                                         {0.3, Split::kLast, 100}}) {
    SCOPED_TRACE(cat(fraction, ", window ", window));
    auto j = job({lines, plain}, {held_out});
    j.validation_fraction = fraction;
    j.split = split;
    j.window = window;
    j.window_documents = 70;
    j.shard_tokens = 100'000;
    const std::string undisturbed = cat("undisturbed", ++number), killed = cat("killed", number);
    prepare(undisturbed, j);
    prepare_and_be_killed(directory_ / killed, j, 0, -1);
    for (auto [encoded, reported] : {std::pair{100, -1}, {-1, 0}, {-1, 1}, {300, -1}, {-1, 2}}) {
      prepare_and_be_killed(directory_ / killed, j, encoded, reported);
      EXPECT_FALSE(read_prepared_manifest(directory_ / killed).complete);
    }
    EXPECT_GE(read_prepared_manifest(directory_ / killed).shards.size(), 2u);
    prepare(killed, j);
    EXPECT_TRUE(files_of(directory_ / killed) == files_of(directory_ / undisturbed));
  }
}

TEST_F(PreparationTest, ARequestToEndLeavesWholeShardsAndIsGoneOnFrom) {
  auto j = job({directory_.write(
      "a.jsonl", json_lines(std::vector(3000, std::string(10'000, 'a'))))});  // several batches
  j.shard_tokens = 2'000'000;
  prepare("expected", j);
  int rounds = 0;
  j.progress = [&](const PreparationProgress& done) {
    if (done.documents > 0 && rounds < 4) request_interruption();
  };
  for (bool ended = false; !ended; ++rounds) {
    try {
      prepare("out", j, 2);
      ended = true;
    } catch (const Interrupted&) {
      expect_contains(user_error([&] { open_prepared_dataset(directory_ / "out"); }),
                      "has not come to its end");
      EXPECT_TRUE(is_prepared_dataset(directory_ / "out"));
    }
    clear_interruption();
  }
  EXPECT_EQ(rounds, 5);
  EXPECT_TRUE(files_of(directory_ / "out") == files_of(directory_ / "expected"));
}

TEST_F(PreparationTest, DocumentsAreHeldOutByDrawsOrFromTheEnd) {
  const auto text = documents(1, 1000);
  auto j = job({directory_.write("a.jsonl", json_lines(text))});
  j.validation_fraction = 0.2;
  prepare("random", j);
  const PreparedDataset random = open_prepared_dataset(directory_ / "random");
  const auto kept = texts_of(random.training), held_out = texts_of(random.validation);
  EXPECT_NEAR(static_cast<double>(held_out.size()), 200, 5 * 12.6);
  std::vector<std::string> merged;
  size_t k = 0, h = 0;
  for (const auto& document : text) {  // both keep the order
    if (k < kept.size() && kept[k] == document) {
      ++k;
    } else {
      ASSERT_TRUE(h < held_out.size() && held_out[h] == document);
      ++h;
    }
  }
  EXPECT_EQ(k + h, 1000u);
  j.seed = 1;
  prepare("seed", j);
  EXPECT_NE(texts_of(open_prepared_dataset(directory_ / "seed").validation), held_out);

  j.split = PreparationJob::Split::kLast;
  prepare("last", j);
  const PreparedDataset last = open_prepared_dataset(directory_ / "last");
  EXPECT_EQ(texts_of(last.training), std::vector(text.begin(), text.begin() + 800));
  EXPECT_EQ(texts_of(last.validation), std::vector(text.begin() + 800, text.end()));
}

// What datasets.map(batched=True) and its group_texts make of it: 1000 documents at a time.
TEST_F(PreparationTest, RowsAreCutFromGroupsOfDocuments) {
  const auto text = documents(1, 250);
  auto j = job({directory_.write("a.jsonl", json_lines(text))});
  j.encoding.document_prefix = {7};
  j.encoding.end_of_text = -1;
  j.window = 64;
  j.window_documents = 100;
  const PreparedManifest manifest = prepare("out", j);
  std::vector<int32_t> expected, group;
  int64_t dropped = 0;
  for (size_t d = 0; d < text.size(); ++d) {
    group.push_back(7);
    group.insert(group.end(), text[d].begin(), text[d].end());
    if (d % 100 < 99 && d + 1 < text.size()) continue;
    const size_t whole = group.size() / 64 * 64;
    dropped += static_cast<int64_t>(group.size() - whole);
    expected.insert(expected.end(), group.begin(), group.begin() + static_cast<ptrdiff_t>(whole));
    group.clear();
  }
  const PreparedDataset data = open_prepared_dataset(directory_ / "out");
  std::vector<int32_t> ids(static_cast<size_t>(data.training.tokens().count()));
  data.training.tokens().copy(0, ids);
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(manifest.dropped, dropped);
  EXPECT_EQ(manifest.window, 64);
  data.training.document_view().for_each([](TokenRange row) { EXPECT_EQ(row.length(), 64); });
}

TEST_F(PreparationTest, FoldersArePreparedDataSetsOfTheirOwn) {
  const auto text = documents(1, 500);
  auto j = job({directory_.write("a.jsonl", json_lines(text))});
  j.validation_fraction = 0.2;
  j.split = PreparationJob::Split::kLast;
  j.folders = true;
  prepare("out", j);
  EXPECT_EQ(texts_of(open_prepared_dataset(directory_ / "out").validation).size(), 100u);
  const PreparedDataset train = open_prepared_dataset(directory_ / "out" / "train");
  const PreparedDataset val = open_prepared_dataset(directory_ / "out" / "val");
  EXPECT_EQ(texts_of(train.training), std::vector(text.begin(), text.begin() + 400));
  EXPECT_EQ(texts_of(val.training), std::vector(text.begin() + 400, text.end()));
  EXPECT_EQ(train.validation.tokens().count(), 0);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "out" / "train" / "shard-00000.bin"));
}

TEST_F(PreparationTest, RowsOfIdsKeepTheirLabels) {
  std::string lines;
  for (int i = 0; i < 50; ++i)
    lines += cat("{\"input_ids\": [1, 2, 3, ", i, "], \"labels\": [-100, -100, 3, ", i, "]}\n");
  auto j = job({directory_.write("rows.jsonl", lines)});
  j.reading.kind = RecordKind::kIds;
  prepare("out", j);
  const PreparedDataset data = open_prepared_dataset(directory_ / "out");
  EXPECT_EQ(data.training.documents(), 50);
  EXPECT_FALSE(data.training.all_learned());
  std::vector<int32_t> targets(4);
  data.training.tokens().copy_targets(data.training.document_view()[9].begin, targets);
  EXPECT_EQ(targets, (std::vector<int32_t>{kIgnoreIndex, kIgnoreIndex, 3, 9}));
}

TEST_F(PreparationTest, BrokenLinesAreCountedOnce) {
  std::string lines;
  for (int i = 0; i < 4000; ++i)
    lines += i % 4 == 3 ? "{broken\n" : "{\"text\": \"abcdefghijkl\"}\n";
  auto j = job({directory_.write("a.jsonl", lines)});
  j.reading.skip_bad_lines = true;
  j.shard_tokens = 5000;
  EXPECT_EQ(prepare("out", j).bad_lines, 1000);
  for (int reports : {1, 2}) prepare_and_be_killed(directory_ / "killed", j, -1, reports);
  EXPECT_EQ(prepare("killed", j).bad_lines, 1000);
  EXPECT_TRUE(files_of(directory_ / "killed") == files_of(directory_ / "out"));
}

TEST_F(PreparationTest, TheSecondCallDoesNothing) {
  auto j = job({directory_.write("a.jsonl", json_lines(documents(1, 100)))});
  const PreparedManifest first = prepare("out", j);
  j.encoding.encode = [](std::string_view, std::vector<int32_t>&) { throw UserError("encoded"); };
  EXPECT_EQ(prepare("out", j), first);
}

TEST_F(PreparationTest, OtherThingsInTheDirectoryAreLeftAlone) {
  const auto file = directory_.write("a.jsonl", json_lines(documents(1, 100)));
  auto j = job({file});
  prepare("out", j);
  const auto before = files_of(directory_ / "out");
  j.shard_tokens = 1000;
  expect_contains(user_error([&] { prepare("out", j); }),
                  "out' holds the preparation of other data");
  j = job({file});
  j.tokenizer_fingerprint = 5;
  expect_contains(user_error([&] { prepare("out", j); }), "another tokenizer");
  EXPECT_TRUE(files_of(directory_ / "out") == before);
  std::filesystem::create_directory(directory_ / "other");
  directory_.write("other/notes.txt", "x");
  expect_contains(user_error([&] { prepare("other", job({file})); }),
                  "other' holds something else ('notes.txt')");
  expect_contains(user_error([&] { prepare("empty", job({directory_.write("e.jsonl", "")})); }),
                  "data set 'words' is empty");
}

TEST_F(PreparationTest, FilesThatAreMissingOrChangedAreErrors) {
  const auto j = job({directory_.write("a.jsonl", json_lines(documents(1, 900)))});
  prepare("out", j);
  const auto out = directory_ / "out";
  const std::string good = read_file(out / "shard-00001.bin");
  auto open = [&](TokenCache::Check check) {
    return user_error([&] { open_prepared_dataset(out, check); });
  };
  std::string bad = good;
  bad[100] ^= 1;
  std::ofstream(out / "shard-00001.bin", std::ios::binary) << bad;
  expect_contains(open(TokenCache::Check::kContent), "shard-00001.bin' is damaged");
  bad.replace(100, 4, 4, '\xff');
  std::ofstream(out / "shard-00001.bin", std::ios::binary) << bad;
  expect_contains(user_error([&] {
                    const PreparedDataset data =
                        open_prepared_dataset(out, TokenCache::Check::kSizes);
                    data.training.tokens().for_each([](int32_t) {});
                  }),
                  "entries: the file is damaged: copy it again, or prepare");
  std::filesystem::copy_file(out / "shard-00000.bin", out / "shard-00001.bin",
                             std::filesystem::copy_options::overwrite_existing);
  expect_contains(open(TokenCache::Check::kSizes), "shard-00001.bin' is not the file that");
  std::filesystem::remove(out / "shard-00001.bin");
  expect_contains(open(TokenCache::Check::kSizes), "shard-00001.bin'");
  expect_contains(user_error([&] { open_prepared_dataset(directory_.path()); }), "manifest.json");
}

TEST_F(PreparationTest, AFileThatChangesWhileItIsReadIsAnError) {
  const auto file = directory_.write("a.jsonl", json_lines(documents(1, 10)));
  PreparationJob j = job({file});
  j.progress = [&](const PreparationProgress&) { std::ofstream(file, std::ios::app) << "\n"; };
  expect_contains(user_error([&] { prepare("out", j); }),
                  "data set 'words' has changed while it was read: delete '");
  EXPECT_FALSE(read_prepared_manifest(directory_ / "out").complete);
}

TEST_F(PreparationTest, FlatFilesAreTheIdsAlone) {
  const auto text = documents(1, 300);
  prepare("out", job({directory_.write("a.jsonl", json_lines(text))}));
  const PreparedDataset data = open_prepared_dataset(directory_ / "out");
  for (int64_t vocabulary : {257, 70000}) {
    write_flat_tokens(directory_ / "train.bin", data.training.tokens(), vocabulary);
    std::string expected;
    for (const auto& document : text) {
      for (char c : document) expected.append({c, '\0'}).append(vocabulary > 65536 ? 2 : 0, '\0');
      expected.append("\0\1", 2).append(vocabulary > 65536 ? 2 : 0, '\0');
    }
    EXPECT_TRUE(read_file(directory_ / "train.bin") == expected);
  }
}

}  // namespace
}  // namespace tessera
