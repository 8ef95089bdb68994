// Small files that unpack to more than fits: read in bounded memory, or refused by an error that
// names the file, and the line where there are lines.
#include <array>
#include <functional>

#include "base/text.h"
#include "base/thread_pool.h"
#include "data/dataset_files.h"
#include "data/document_reader.h"
#include "data/stream_reader.h"
#include "data/token_encoder.h"
#include "tests/base/error_expectation.h"
#include "tests/base/memory_growth.h"
#include "tests/base/scratch_directory.h"
#include "tests/data/packed_text.h"

namespace tessera {
namespace {

struct Codec {
  const char* ending;
  std::function<std::string(std::string_view)> pack;
};
const Codec kCodecs[] = {{".gz", [](std::string_view text) { return gzip(text); }},
                         {".zst", [](std::string_view text) { return zstd(text); }},
                         {".xz", [](std::string_view text) { return xz(text); }}};

std::string times(std::string_view part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

class Bomb : public testing::Test {
 protected:
  // `head`, so many MiB of `part` over and over, `tail`.
  std::filesystem::path write(const std::string& name, const Codec& codec, std::string_view head,
                              std::string_view part, int64_t mebibytes,
                              std::string_view tail = "") {
    constexpr size_t kMember = size_t{16} << 20;
    const std::string member = codec.pack(times(part, kMember));
    std::string packed = head.empty() ? "" : codec.pack(head);
    for (int64_t made = 0; made < mebibytes * kMiB; made += kMember) packed += member;
    if (!tail.empty()) packed += codec.pack(tail);
    EXPECT_LT(std::ssize(packed), mebibytes * kMiB / 200);
    return directory_.write(name + codec.ending, packed);
  }

  static StreamSettings stream(const std::vector<std::filesystem::path>& files, RecordKind kind,
                               EncodeRecord encode, int64_t lanes) {
    StreamSettings all;
    StreamSettings::Source source;
    source.files = local_entries(files);
    source.reading.kind = kind;
    source.encode = std::move(encode);
    all.sources.push_back(std::move(source));
    all.lanes = lanes;
    all.context = 16;
    all.buffer = 100;
    return all;
  }
  // A token for every 8 bytes.
  static void count_eights(const Record& record, TokenDocument& out) {
    out.ids.assign(record.text.size() / 8, 1);
  }

  ScratchDirectory directory_;
};

TEST_F(Bomb, PlainTextIsReadInParts) {
  for (const Codec& codec : kCodecs) {
    SCOPED_TRACE(codec.ending);
    const auto file = write("bomb.txt", codec, "", "Some words and a line end.\n", 256);
    const Growth growth = growth_of([&] {
      DocumentReader reader(std::vector{file});
      int64_t bytes = 0;
      for (std::string part; reader.next_part(part) != TextPart::kNone;) bytes += std::ssize(part);
      EXPECT_GE(bytes, 256 * kMiB);
    });
    EXPECT_EQ(growth.error, "");
    expect_growth_below(growth, 24 * kMiB);
  }
}

TEST_F(Bomb, AnEndlessLineOfJsonIsRefused) {
  for (const Codec& codec : kCodecs) {
    for (std::string_view endless : {"aaaaaaaaaaaaaaa", "               ", "[[[[[[[[[[[[[[["}) {
      SCOPED_TRACE(cat(codec.ending, " ", endless));
      const auto file =
          write("bomb.json", codec, "{\"text\": \"fine\"}\n{\"text\": \"", endless, 80);
      const Growth growth = growth_of([&] {
        DocumentReader reader(std::vector{file});
        for (std::string text; reader.next(text);) EXPECT_EQ(text, "fine");
      });
      expect_contains(growth.error, cat(file.string(), "', line 2: longer than 64.0 MiB"));
      expect_growth_below(growth, 200 * kMiB);
    }
  }
}

TEST_F(Bomb, BlankLinesAreReadAway) {
  const std::string line = std::string(4000, ' ') + "\n";
  for (const Codec& codec : kCodecs) {
    SCOPED_TRACE(codec.ending);
    const auto file = write("bomb.json", codec, "", line, 96, "broken");
    const Growth growth = growth_of([&] {
      DocumentReader reader(std::vector{file});
      std::string text;
      reader.next(text);
    });
    // Whole pieces of 16 MiB and a bit.
    const int64_t lines = 6 * ((16 * kMiB + 4000) / 4001);
    expect_contains(growth.error, cat(file.string(), "', line ", lines + 1, ": "));
    expect_growth_below(growth, 24 * kMiB);
  }
}

TEST_F(Bomb, ZeroBytesAreNoText) {
  for (const Codec& codec : kCodecs) {
    const auto file = write("bomb.txt", codec, "", std::string_view("\0", 1), 64);
    const Growth growth = growth_of([&] {
      DocumentReader reader(std::vector{file});
      std::string part;
      reader.next_part(part);
    });
    expect_contains(growth.error, cat(file.string(), "' looks binary: there is a zero byte"));
    expect_growth_below(growth, 24 * kMiB);
  }
}

TEST_F(Bomb, NestedJsonIsRefusedAndCanBeLeftOut) {
  const std::string deep = times("[", 2 << 20), closed = deep + times("]", 2 << 20);
  const std::string object = times("{\"a\":", 2 << 20);
  const std::pair<RecordKind, std::string> kinds[] = {
      {RecordKind::kText, "{\"text\": \"fine\", \"more\": "},
      {RecordKind::kIds, "{\"input_ids\": [1], \"more\": "},
      {RecordKind::kChat, "{\"prompt\": \"a\", \"completion\": \"b\", \"more\": "}};
  for (const auto& [kind, head] : kinds) {
    for (const std::string& nested : {deep, cat(closed, "}"), object}) {
      const auto file = directory_.write("deep.json.zst",
                                         zstd(cat(head, "1}\n", head, nested, "\n", head, "2}\n")));
      DocumentReader reader(std::vector{file}, {.kind = kind});
      Record record;
      EXPECT_TRUE(reader.next(record));
      expect_contains(user_error([&] { reader.next(record); }), cat(file.string(), "', line 2: "));
      DocumentReader lenient(std::vector{file}, {.skip_bad_lines = true, .kind = kind});
      EXPECT_TRUE(lenient.next(record));
      EXPECT_TRUE(lenient.next(record));
      EXPECT_FALSE(lenient.next(record));
      EXPECT_EQ(lenient.bad_lines(), 1);
    }
  }
}

// Each member, frame or stream is a header to parse, and no text.
TEST_F(Bomb, EmptyPartsAreReadAway) {
  for (const Codec& codec : kCodecs) {
    SCOPED_TRACE(codec.ending);
    const std::string packed = times(codec.pack(""), 4 << 20) + codec.pack("text");
    const auto file = directory_.write(cat("empty.txt", codec.ending), packed);
    const Growth growth = growth_of([&] {
      DocumentReader reader(std::vector{file});
      std::string text;
      EXPECT_TRUE(reader.next(text));
      EXPECT_EQ(text, "text");
    });
    EXPECT_EQ(growth.error, "");
    expect_growth_below(growth, 24 * kMiB);
  }
}

TEST_F(Bomb, AStreamRefusesADocumentThatIsTooLong) {
  for (const Codec& codec : kCodecs) {
    const auto file = write("bomb.txt", codec, "fine\n<|endoftext|>\n", "A line without end.", 96);
    const StreamSettings all = stream({file}, RecordKind::kText, count_eights, 96);
    const Growth growth = growth_of([&] {
      StreamReader reader(all, {.rows = 96, .threads = 2});
      Batch batch;
      for (int i = 0; i < 100; ++i) reader.next(batch);
    });
    expect_contains(growth.error, cat(file.string(), "': longer than 64.0 MiB"));
    expect_contains(growth.error, "--streaming off");
    expect_growth_below(growth, 400 * kMiB);  // a text twice while it grows, for each thread
  }
}

TEST_F(Bomb, LongDocumentsAreNotBufferedByTheHundred) {
  std::vector<std::filesystem::path> files;
  const std::string line = zstd("{\"text\": \"" + std::string(16 << 20, 'a') + "\"}\n");
  for (int i = 0; i < 8; ++i)
    files.push_back(directory_.write(cat("f", i, ".json.zst"), line + line + line + line + line));
  const StreamSettings all = stream(files, RecordKind::kText, count_eights, 8);
  const Growth growth = growth_of([&] {
    StreamReader reader(all, {.rows = 8, .threads = 2});
    Batch batch;
    reader.next(batch);
    // Of each lane one that is being given, and one behind it.
    EXPECT_LT(to_bytes(reader.state()).size(), size_t{16 * 9} << 20);
  });
  EXPECT_EQ(growth.error, "");
  // Those, twice as they are written to bytes, and a line with its parser for each thread. All five
  // of each lane would be 190 MiB more, and their bytes.
  expect_growth_below(growth, 600 * kMiB);
}

TEST_F(Bomb, LanesKeepNothingOfALongLine) {
  // A line of 2 million numbers, for which the parser takes 14 times as much. All lanes read it,
  // and are in the midst of the file when they have given a window.
  std::string lines;
  for (int i = 0; i < 12 * 40; ++i) {
    lines += "{\"input_ids\": [1, 2, 3]}\n";
    if (i == 3) lines += "{\"input_ids\": [" + times("1,", 4 << 20) + "1]}\n";
  }
  const auto file = directory_.write("ids.json.zst", zstd(lines));
  EXPECT_LT(std::filesystem::file_size(file), size_t{64} << 10);
  auto encode = [](const Record& record, TokenDocument& out) {
    out.ids.assign(record.ids.begin(), record.ids.begin() + 1);
  };
  StreamSettings all = stream({file}, RecordKind::kIds, encode, 12);
  all.buffer = 1;
  const Growth growth = growth_of([&] {
    StreamReader reader(all, {.rows = 12, .threads = 2, .ahead = 1});
    Batch batch;
    reader.next(batch);
    EXPECT_FALSE(reader.done());
  });
  EXPECT_EQ(growth.error, "");
  expect_growth_below(growth, 420 * kMiB);  // 12 lanes would keep twice as much
}

// Where a tokenizer takes a document in one piece only.
TEST_F(Bomb, LongDocumentsAreEncodedAFewAtATime) {
  EncodingJob job;
  job.name = "'x'";
  job.vocab_size = 10;
  int64_t left = 0;
  job.encode = [](std::string_view text, std::vector<int32_t>& ids) {
    ids.assign(text.size() / 1000, 1);
  };
  job.documents = [&](std::string& text) {
    if (left == 0) return TextPart::kNone;
    --left;
    text.assign(size_t{16} << 20, 'a');
    return TextPart::kLast;
  };
  job.end_of_text = 0;
  const Growth text = growth_of([&] {
    left = 30;
    ThreadPool pool(2);
    TokenEncoder encoder(job, pool);
    std::vector<EncodedSegment> out;
    while (encoder.next(out)) {
    }
    EXPECT_EQ(left, 0);
  });
  EXPECT_EQ(text.error, "");
  expect_growth_below(text, 120 * kMiB);  // not 480 MiB
  job.documents = nullptr;
  job.records = [&](Record& record) {
    if (left-- == 0) return false;
    record.ids.assign(size_t{4} << 20, 1);
    return true;
  };
  const Growth records = growth_of([&] {
    left = 30;
    ThreadPool pool(2);
    TokenEncoder encoder(job, pool);
    std::vector<EncodedSegment> out;
    while (encoder.next(out)) {
    }
  });
  EXPECT_EQ(records.error, "");
  expect_growth_below(records, 160 * kMiB);
}

}  // namespace
}  // namespace tessera
