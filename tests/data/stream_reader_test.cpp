#include "data/stream_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/interruption.h"
#include "base/random.h"
#include "base/text.h"
#include "data/dataset_files.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

constexpr int32_t kFill = 0;

// Documents of numbers that are all different, over some files of JSON lines.
class StreamReaderTest : public testing::Test {
 protected:
  static void numbers(const Record& record, TokenDocument& out) {
    for (std::string_view word : split(record.text, ' '))
      out.ids.push_back(static_cast<int32_t>(std::stoi(std::string(word))));
  }

  // `first`: the first token.
  std::vector<RemoteEntry> make_files(const std::string& name, int files, int documents,
                                      int32_t first = 1) {
    std::vector<std::filesystem::path> paths;
    int32_t token = first;
    for (int f = 0; f < files; ++f) {
      std::string lines;
      for (int d = 0; d < documents; ++d) {
        std::vector<std::string> words;
        const auto length = 1 + random_below(7, 1, static_cast<uint64_t>(f * 1000 + d), 40);
        starts_.insert(token);
        for (uint64_t i = 0; i < length; ++i) words.push_back(std::to_string(token++));
        lines += cat(R"({"text": ")", join(words, " "), "\"}\n");
      }
      paths.push_back(directory_.write(cat(name, "-", f, ".json"), lines));
    }
    tokens_ = token - first;
    return local_entries(paths);
  }

  StreamSettings settings(std::vector<RemoteEntry> files) {
    StreamSettings all;
    all.sources.push_back({std::move(files), 1, {}, numbers});
    all.lanes = 12;
    all.context = 16;
    all.buffer = 3;
    all.seed = 42;
    return all;
  }

  // A sample as it was given: inputs, then targets.
  using Sample = std::vector<int32_t>;

  // Runs a world until `end` samples or to the end, and notes all samples by their number.
  StreamState run(const StreamSettings& all, int64_t ranks, int64_t rows, const StreamState& from,
                  int64_t end, std::map<int64_t, Sample>& samples, int threads = 2) {
    std::vector<std::unique_ptr<StreamReader>> readers;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      readers.push_back(std::make_unique<StreamReader>(
          all,
          StreamReaderOptions{
              .rows = rows, .ranks = ranks, .rank = rank, .threads = threads, .ahead = 2},
          from));
    }
    auto ended = [&] {
      return std::ranges::all_of(readers, [](const auto& reader) { return reader->done(); });
    };
    Batch batch;
    while (readers[0]->position() < end && !ended()) {
      for (auto& reader : readers) {
        EXPECT_TRUE(reader->next(batch));
        for (int64_t row = 0; row < batch.rows; ++row) {
          const auto at = row * all.context;
          Sample sample(batch.inputs.begin() + at, batch.inputs.begin() + at + all.context);
          sample.insert(sample.end(), batch.targets.begin() + at,
                        batch.targets.begin() + at + all.context);
          const int64_t number = batch.first_sample + row * batch.sample_stride;
          EXPECT_TRUE(samples.emplace(number, sample).second) << number;
        }
      }
    }
    StreamState state{readers[0]->position(), {}};
    for (auto& reader : readers) {
      for (auto& [lane, lane_state] : reader->state().lanes)
        EXPECT_TRUE(state.lanes.emplace(lane, lane_state).second) << "lane " << lane;
    }
    EXPECT_EQ(std::ssize(state.lanes), all.lanes);
    return stream_state_from_bytes(to_bytes(state), all.sources.size(), "state");
  }

  // Every token is an input once, and a target once but for the first of each lane.
  void expect_all_once(const std::map<int64_t, Sample>& samples, const StreamSettings& all,
                       int64_t epochs = 1) {
    std::map<int32_t, int64_t> inputs, targets;
    for (const auto& [number, sample] : samples) {
      for (int64_t t = 0; t < all.context; ++t) {
        const int32_t input = sample[static_cast<size_t>(t)];
        const int32_t target = sample[static_cast<size_t>(t + all.context)];
        if (input != kFill) ++inputs[input];
        if (target != kIgnoreIndex) ++targets[target];
      }
    }
    EXPECT_EQ(std::ssize(inputs), tokens_);
    int64_t missing = 0;
    for (const auto& [token, times] : inputs) {
      EXPECT_LE(times, epochs) << token;
      EXPECT_GE(times + (targets[token] - times), epochs - 1) << token;
      missing += epochs - targets[token];
      EXPECT_LE(targets[token], epochs);
    }
    EXPECT_EQ(missing, all.lanes);
  }

  // Six worlds one after the other, each from what the one before has kept.
  void expect_same_on_worlds_that_change(const StreamSettings& all,
                                         const std::map<int64_t, Sample>& undisturbed) {
    std::map<int64_t, Sample> samples;
    StreamState state;
    const auto end = static_cast<int64_t>(undisturbed.size());
    int64_t part = 0;
    // 5 does not divide the lanes; 24 are more than there are.
    for (int64_t ranks : {1, 4, 2, 3, 5, 24}) {
      ++part;
      state = run(all, ranks, 1 + part % 3, state, end * part / 7, samples,
                  static_cast<int>(1 + part % 3));
    }
    run(all, 2, 5, state, INT64_MAX, samples);
    for (const auto& [number, sample] : samples) {
      auto same = undisturbed.find(number);
      if (same != undisturbed.end()) {
        EXPECT_EQ(sample, same->second) << number;
      } else {  // of the last batch
        Sample nothing(static_cast<size_t>(all.context), kFill);
        nothing.resize(static_cast<size_t>(2 * all.context), kIgnoreIndex);
        EXPECT_EQ(sample, nothing) << number;
      }
      if (HasFailure()) return;
    }
    for (const auto& [number, sample] : undisturbed)
      EXPECT_TRUE(sample[0] == kFill || samples.contains(number)) << number;
  }

  ScratchDirectory directory_;
  std::set<int32_t> starts_;  // the first token of each document
  int32_t tokens_ = 0;
};

TEST_F(StreamReaderTest, EveryTokenOnceOnWorldsThatChange) {
  for (int files : {1, 5, 12, 31}) {
    SCOPED_TRACE(cat(files, " files"));
    const StreamSettings all = settings(make_files(cat("f", files), files, 60));
    std::map<int64_t, Sample> undisturbed;
    run(all, 1, 6, {}, INT64_MAX, undisturbed, 1);
    expect_all_once(undisturbed, all);

    expect_same_on_worlds_that_change(all, undisturbed);
    if (HasFailure()) return;
  }
}

// A document is one run of numbers: where it begins and how many there are.
using Runs = std::vector<std::pair<int32_t, size_t>>;

Runs runs_of(const std::vector<int32_t>& sample, size_t context) {
  Runs runs;
  for (size_t t = 0; t < context && sample[t] != kFill; ++t) {
    if (t == 0 || sample[t] != sample[t - 1] + 1) runs.emplace_back(sample[t], 0);
    ++runs.back().second;
    const bool goes_on = t + 1 < context && sample[t + 1] == sample[t] + 1;
    const int32_t target = sample[context + t];
    // The last of a document predicts nothing; that of a full window the next one if there is one.
    if (goes_on || target != kIgnoreIndex) {
      EXPECT_EQ(target, sample[t] + 1);
    }
    EXPECT_TRUE(goes_on || target == kIgnoreIndex || t + 1 == context);
  }
  return runs;
}

TEST_F(StreamReaderTest, BestFitCutsOnlyWhatIsLongerThanAWindow) {
  StreamSettings all = settings(make_files("f", 7, 60));
  // There are gaps between the numbers of documents, so that these can be told apart.
  all.sources[0].encode = [](const Record& record, TokenDocument& out) {
    numbers(record, out);
    const int32_t gap = 2 * out.ids[0];
    for (int32_t& id : out.ids) id += gap;
  };
  all.packing = Packing::kBestFit;
  all.buffer = 20;
  std::map<int64_t, Sample> samples;
  run(all, 1, 6, {}, INT64_MAX, samples);
  std::map<int32_t, size_t> seen;  // pieces that begin with this number
  size_t tokens = 0, windows = 0;
  for (const auto& [number, sample] : samples) {
    const Runs runs = runs_of(sample, 16);
    windows += !runs.empty();
    for (const auto& [first, length] : runs) {
      EXPECT_TRUE(seen.emplace(first, length).second);
      tokens += length;
    }
  }
  EXPECT_EQ(tokens, static_cast<size_t>(tokens_));
  int64_t whole = 0;
  for (auto piece = seen.begin(); piece != seen.end(); ++piece) {
    const auto next = std::next(piece);
    // A piece that goes on elsewhere is a window of its own.
    if (next != seen.end() && next->first == piece->first + static_cast<int32_t>(piece->second)) {
      EXPECT_EQ(piece->second, 16u);
    } else {
      ++whole;
    }
  }
  EXPECT_EQ(whole, 7 * 60);
  const double padding = 1 - static_cast<double>(tokens) / static_cast<double>(windows * 16);
  EXPECT_LT(padding, 0.16);  // a lane has 35 documents; one each would be a third
  expect_same_on_worlds_that_change(all, samples);
}

TEST_F(StreamReaderTest, RowsAreADocumentEach) {
  StreamSettings all = settings(make_files("f", 7, 60));
  all.packing = Packing::kRows;
  std::map<int64_t, Sample> samples;
  run(all, 1, 6, {}, INT64_MAX, samples);
  int64_t rows = 0, cut_behind_their_start = 0, cut = 0;
  std::set<int32_t> seen;
  for (const auto& [number, sample] : samples) {
    const Runs runs = runs_of(sample, 16);
    // Documents follow each other in their numbers, so one run is one document or two neighbours.
    ASSERT_LE(runs.size(), 1u);
    if (runs.empty()) continue;
    ++rows;
    for (int32_t t = 0; t < static_cast<int32_t>(runs[0].second); ++t)
      EXPECT_TRUE(seen.insert(runs[0].first + t).second);
    cut += runs[0].second == 16;
    cut_behind_their_start += !starts_.contains(runs[0].first);
    // Of a row of T + 1 the last is a target; of longer ones what follows is left out.
    const int32_t first = runs[0].first;
    const bool one_more =
        runs[0].second == 16 && starts_.contains(first) && starts_.contains(first + 17);
    EXPECT_EQ(sample[31], one_more ? first + 16 : kIgnoreIndex);
  }
  EXPECT_EQ(rows, 7 * 60);
  EXPECT_GT(cut_behind_their_start, cut / 2);  // from a random place
  EXPECT_LT(cut_behind_their_start, cut);
  expect_same_on_worlds_that_change(all, samples);
}

TEST_F(StreamReaderTest, ALimitedEpochIsTheSameDocumentsAgain) {
  for (Packing packing : {Packing::kConcatenate, Packing::kBestFit, Packing::kRows}) {
    StreamSettings all = settings(make_files("f", 30, 60));
    all.packing = packing;
    all.epochs = 3;
    all.epoch_windows = 100;
    std::map<int64_t, Sample> samples;
    run(all, 2, 3, {}, INT64_MAX, samples);
    std::map<int32_t, int64_t> times;
    int64_t windows = 0;
    for (const auto& [number, sample] : samples) {
      windows += sample[0] != kFill;
      for (size_t t = 0; t < 16; ++t)
        if (sample[t] != kFill) ++times[sample[t]];
    }
    // A lane ends with a whole document, which may be more than two windows.
    EXPECT_GE(windows, 300);
    EXPECT_LE(windows, 300 + 3 * 3 * 12);
    // Of rows other parts are used each time.
    for (const auto& [token, count] : times) {
      if (packing != Packing::kRows) {
        EXPECT_EQ(count, 3) << token;
      }
    }
    EXPECT_LT(std::ssize(times), tokens_ / 4);
    expect_same_on_worlds_that_change(all, samples);

    all.epoch_windows = 5;  // some lanes have none
    all.epochs = 1;
    std::map<int64_t, Sample> few;
    run(all, 1, 12, {}, 12, few);
    for (const auto& [number, sample] : few) EXPECT_EQ(sample[0] != kFill, number < 5);
  }
}

TEST_F(StreamReaderTest, EpochsAreWholeAndDiffer) {
  StreamSettings all = settings(make_files("f", 9, 30));
  all.epochs = 3;
  std::map<int64_t, Sample> samples;
  run(all, 2, 3, {}, INT64_MAX, samples);
  expect_all_once(samples, all, 3);
}

// Also of lanes that had ended, and of some that had not.
TEST_F(StreamReaderTest, GoesOnForMoreEpochsThanItBeganWith) {
  StreamSettings all = settings(make_files("f", 5, 30));
  all.packing = Packing::kRows;
  all.shuffle = false;
  all.epochs = 3;
  std::map<int64_t, Sample> undisturbed;
  run(all, 1, 4, {}, INT64_MAX, undisturbed);
  auto rows_of = [](const std::map<int64_t, Sample>& samples) {
    return std::ranges::count_if(samples, [](const auto& s) { return s.second[0] != kFill; });
  };
  EXPECT_EQ(rows_of(undisturbed), 3 * 5 * 30);
  for (int64_t stop : {int64_t{140}, INT64_MAX}) {
    all.epochs = 1;
    std::map<int64_t, Sample> samples;
    const StreamState state = run(all, 1, 4, {}, stop, samples);
    const int64_t rows_of_first = rows_of(samples);
    all.epochs = 3;
    run(all, 2, 3, state, INT64_MAX, samples);
    EXPECT_EQ(rows_of(samples), 3 * 5 * 30) << stop;
    all.epochs = 1;
    std::map<int64_t, Sample> nothing;
    run(all, 1, 4, state, INT64_MAX, nothing);
    EXPECT_EQ(rows_of(nothing), stop == INT64_MAX ? 0 : 5 * 30 - rows_of_first);
  }
}

TEST_F(StreamReaderTest, ThreadsChangeNothing) {
  const StreamSettings all = settings(make_files("f", 7, 40));
  std::map<int64_t, Sample> one, many;
  run(all, 2, 4, {}, INT64_MAX, one, 1);
  run(all, 2, 4, {}, INT64_MAX, many, 5);
  EXPECT_EQ(one, many);
}

TEST_F(StreamReaderTest, AnotherContextGoesOnWithTheNextToken) {
  StreamSettings all = settings(make_files("f", 12, 40));
  std::map<int64_t, Sample> before, after;
  StreamState state = run(all, 1, 12, {}, 36, before);
  all.context = 7;
  state.position = 36;
  run(all, 1, 12, state, INT64_MAX, after);
  std::set<int32_t> seen;
  for (const auto& [number, sample] : before)
    for (size_t t = 16; t < 32; ++t) EXPECT_TRUE(seen.insert(sample[t]).second);
  for (const auto& [number, sample] : after)
    for (size_t t = 7; t < 14; ++t)
      if (sample[t] != kIgnoreIndex) {
        EXPECT_TRUE(seen.insert(sample[t]).second);
      }
  EXPECT_EQ(std::ssize(seen), tokens_ - all.lanes);
}

TEST_F(StreamReaderTest, MixturesKeepTheirShares) {
  StreamSettings all = settings(make_files("a", 4, 50));
  const int32_t of_a = tokens_;
  all.sources.push_back({make_files("b", 4, 50, 100'000), 3, {}, numbers});
  std::map<int64_t, Sample> samples;
  StreamState state = run(all, 1, 12, {}, 600, samples);
  std::map<int64_t, Sample> rest;
  run(all, 3, 4, state, 1200, rest);
  samples.merge(rest);
  double a = 0, b = 0;
  for (const auto& [number, sample] : samples)
    for (size_t t = 16; t < 32; ++t) (sample[t] <= of_a ? a : b) += 1;
  EXPECT_NEAR(b / (a + b), 0.75, 0.01);
  EXPECT_GT(a, of_a);  // it began again

  std::map<int64_t, Sample> undisturbed;
  run(all, 1, 12, {}, 1200, undisturbed);
  EXPECT_EQ(samples, undisturbed);
}

TEST_F(StreamReaderTest, SaysWhereDocumentsStartAndWhatIsLearned) {
  StreamSettings all = settings(make_files("f", 1, 30));
  all.lanes = 1;
  all.sources[0].encode = [](const Record& record, TokenDocument& out) {
    numbers(record, out);
    out.learned.assign(out.ids.size(), 0);
    out.learned.back() = 1;
  };
  StreamReader reader(all, {.rows = 4, .document_starts = true});
  Batch batch;
  int64_t learned = 0, documents = 0;
  while (!reader.done()) {
    reader.next(batch);
    learned += batch.tokens;
    for (size_t t = 0; t < batch.inputs.size(); ++t) {
      const int32_t start = batch.document_starts[t];
      ASSERT_LE(start, static_cast<int32_t>(t % 16));
      // The numbers of a document follow each other.
      if (batch.inputs[t] == kFill || t % 16 == 0) continue;
      const bool follows =
          batch.inputs[t] == batch.inputs[t - 1] + 1 && start == batch.document_starts[t - 1];
      EXPECT_NE(follows, start == static_cast<int32_t>(t % 16));
      documents += !follows;
    }
  }
  EXPECT_GT(documents, 10);
  EXPECT_EQ(learned, 30);  // no document is but one token long, or the first would be missing
}

TEST_F(StreamReaderTest, ErrorsOfReadersAreThoseOfNext) {
  StreamSettings all = settings(make_files("f", 2, 3));
  directory_.write("f-1.json", "{\"text\": 1}\n");
  StreamReader reader(all, {.rows = 12});
  Batch batch;
  const std::string message = user_error([&] {
    for (int i = 0; i < 100; ++i) reader.next(batch);
  });
  expect_contains(message, "f-1.json', line 1");
}

// As checkpoints have it.
TEST_F(StreamReaderTest, TheFingerprintKnowsNothingOfBrokenLines) {
  StreamSettings all = settings({{.path = "a.json", .size = 100}});
  for (bool skips : {false, true}) {
    all.sources[0].reading.skip_bad_lines = skips;
    EXPECT_EQ(stream_fingerprint(all, 7), 13569062190309713976u);
    EXPECT_EQ(stream_fingerprint(all, 7, /*skips_bad_lines=*/true), 10760735930165633628u);
  }
}

TEST_F(StreamReaderTest, IsNotEndedByARequestToTheProcess) {
  const StreamSettings all = settings(make_files("f", 3, 40));
  std::map<int64_t, Sample> undisturbed, samples;
  run(all, 2, 3, {}, INT64_MAX, undisturbed);
  request_interruption();
  run(all, 2, 3, {}, INT64_MAX, samples);
  clear_interruption();
  EXPECT_EQ(samples, undisturbed);
}

TEST_F(StreamReaderTest, DamagedStatesAreRefused) {
  const StreamSettings all = settings(make_files("f", 3, 10));
  std::map<int64_t, Sample> samples;
  const StreamState state = run(all, 1, 4, {}, 8, samples);
  const std::string bytes = to_bytes(state);
  EXPECT_EQ(to_bytes(stream_state_from_bytes(bytes, 1, "x")), bytes);
  expect_contains(user_error([&] { stream_state_from_bytes(bytes, 2, "x"); }),
                  "another number of sources");
  for (size_t cut = 0; cut < bytes.size(); cut += 1 + bytes.size() / 300)
    EXPECT_THROW(stream_state_from_bytes(bytes.substr(0, cut), 1, "x"), UserError);
  for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 300) {
    std::string broken = bytes;
    broken[at] = static_cast<char>(broken[at] ^ 4);
    EXPECT_THROW(stream_state_from_bytes(broken, 1, "x"), UserError) << at;
  }
}

}  // namespace
}  // namespace tessera
