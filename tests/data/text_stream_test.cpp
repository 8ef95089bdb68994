#include "data/text_stream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "base/hash.h"
#include "data/position_bytes.h"
#include "tests/base/error_expectation.h"
#include "tests/data/packed_text.h"

namespace tessera {
namespace {

std::shared_ptr<MemorySource> source(std::string content) {
  return std::make_shared<MemorySource>(std::move(content), "data.txt");
}

std::string read_to_end(TextStream& stream, size_t piece = 1 << 16) {
  std::string text, part(piece, '\0');
  for (size_t n; (n = stream.read(part.data(), part.size())) > 0;) text.append(part, 0, n);
  return text;
}

std::string unpacked(const std::string& content, size_t piece = 1 << 16) {
  TextStream stream(source(content));
  std::string text = read_to_end(stream, piece);
  EXPECT_EQ(stream.bytes_consumed(), std::ssize(content));
  EXPECT_EQ(stream.offset(), text.size());
  return text;
}

// The same text in every form, with the seams that each of them knows.
struct Form {
  const char* name;
  std::function<std::string(std::string_view)> pack;
};

const Form kForms[] = {
    {"plain", [](std::string_view text) { return std::string(text); }},
    {"gzip", [](std::string_view text) { return gzip(text); }},
    {"stored", [](std::string_view text) { return gzip(text, 0); }},
    {"members",
     [](std::string_view text) {
       return gzip(text.substr(0, text.size() / 3)) + gzip("") + std::string(3, '\0') +
              gzip(text.substr(text.size() / 3), 9) + std::string(100, '\0');
     }},
    {"zstd", [](std::string_view text) { return zstd(text); }},
    {"frames",
     [](std::string_view text) {
       return zstd_skippable("index", 3) + zstd(text.substr(0, text.size() / 3), 1) + zstd("") +
              zstd_skippable("") + zstd(text.substr(text.size() / 3), 9) + zstd_skippable("end");
     }},
    {"xz", [](std::string_view text) { return xz(text); }},
    {"streams",
     [](std::string_view text) {
       return xz(text.substr(0, text.size() / 3), 1000, 1 << 16) + xz("") + std::string(4, '\0') +
              xz(text.substr(text.size() / 3), 300000, 1 << 16, LZMA_CHECK_SHA256) +
              std::string(8, '\0');
     }},
};

TEST(TextStream, UnpacksEveryForm) {
  const std::string words = prose(400000), random = noise(400000);
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.name);
    for (const std::string& text : {std::string(), std::string("x"), words, random}) {
      EXPECT_EQ(unpacked(form.pack(text)), text);
    }
    EXPECT_EQ(unpacked(form.pack(words.substr(0, 3000)), 1), words.substr(0, 3000));
  }
  EXPECT_EQ(unpacked("\x28\xb5\x2f"), "\x28\xb5\x2f");  // no magic number, cut short
}

TEST(TextStream, PositionsGoOnWithTheVeryNextByte) {
  const std::string text = prose(5000) + noise(5000) + prose(1600000);
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.name);
    auto data = source(form.pack(text));
    TextStream stream(data);
    std::string part(300000, '\0');
    for (uint64_t i = 0;; ++i) {
      const auto size = static_cast<size_t>(1 + random_below(5, 6, i, part.size()));
      const size_t n = stream.read(part.data(), size);
      const auto behind = static_cast<size_t>(random_below(7, 8, i, n + 1));
      for (size_t back : {size_t{0}, behind, n}) {
        TextStream next(data, stream.position(back));
        ASSERT_EQ(next.offset(), stream.offset() - back);
        std::string found(1000, '\0');
        size_t got = 0;
        for (size_t m;
             got < found.size() && (m = next.read(found.data() + got, found.size() - got)) > 0;)
          got += m;
        ASSERT_EQ(found.substr(0, got), text.substr(next.offset() - got, 1000));
        ASSERT_EQ(next.offset() - got, stream.offset() - back);
      }
      if (n == 0) break;
    }
    // A position of a stream that began at one, and all the rest behind it.
    TextStream first(data);
    std::string head(text.size() / 2, '\0');
    for (size_t done = 0, n; done < head.size(); done += n)
      n = first.read(head.data() + done, head.size() - done);
    TextStream second(data, first.position());
    std::string more(300000, '\0');
    for (size_t done = 0, n; done < more.size(); done += n)
      n = second.read(more.data() + done, more.size() - done);
    TextStream third(data, second.position());
    EXPECT_EQ(head + more + read_to_end(third), text);
    EXPECT_EQ(third.bytes_consumed(), static_cast<int64_t>(data->size()));
  }
}

TEST(TextStream, PositionsReadNothingOfWhatWasBefore) {
  const std::string text = prose(8 << 20);
  const std::pair<const char*, std::string> cases[] = {
      {"plain", text},
      {"gzip", gzip(text)},
      {"frames", zstd(text.substr(0, 7 << 20)) + zstd(text.substr(7 << 20))},
      {"blocks", xz(text, 1 << 20)}};
  for (const auto& [name, content] : cases) {
    SCOPED_TRACE(name);
    TextStream stream(source(content));
    std::string part(1 << 20, '\0');
    while (stream.offset() < (7u << 20) + 500000) stream.read(part.data(), 100000);
    const std::string position = stream.position();
    EXPECT_LE(position.size(), 33u << 10);
    auto again = source(content);
    TextStream next(again, position);
    EXPECT_GT(again->first(), content.size() / 4 * 3);
    EXPECT_LE(again->bytes_read(), content.size() / 4);
    EXPECT_EQ(read_to_end(next), text.substr(stream.offset()));
  }
}

TEST(TextStream, SumsOfAMemberAreCheckedBehindAPosition) {
  const std::string text = prose(3 << 20), packed = gzip(text);
  for (size_t byte : {packed.size() - 8, packed.size() - 1}) {
    std::string damaged = packed;
    damaged[byte] ^= 1;
    TextStream stream(source(damaged));
    std::string part(1 << 20, '\0');
    while (stream.offset() < (2u << 20)) stream.read(part.data(), part.size());
    TextStream next(source(damaged), stream.position());
    std::string message = user_error([&] { read_to_end(next); });
    expect_contains(message,
                    byte == packed.size() - 8 ? "incorrect data check" : "incorrect length check");
  }
  TextStream stream(source(packed));
  std::string part(1 << 20, '\0');
  while (stream.offset() < (2u << 20)) stream.read(part.data(), part.size());
}

TEST(TextStream, DataThatEndsTooSoonIsAnErrorWhereverItIsCut) {
  const std::string text = prose(700);
  for (const Form& form : kForms) {
    if (form.pack("") == "") continue;
    SCOPED_TRACE(form.name);
    const std::string whole = form.pack(text);
    int complete = 0;  // cut between two members, frames or streams, or in what fills
    for (size_t size = 6; size < whole.size(); ++size) {
      TextStream stream(source(whole.substr(0, size)));
      try {
        std::string part = read_to_end(stream);
        EXPECT_EQ(part, text.substr(0, part.size()));
        ++complete;
      } catch (const UserError& error) {
        expect_contains(error.what(), "'data.txt' is truncated: it ends inside");
        expect_contains(error.what(), "after " + std::to_string(size) + " bytes");
      }
    }
    EXPECT_LT(complete, 120);
  }
}

TEST(TextStream, DamagedDataIsAnErrorThatNamesTheSource) {
  const std::string text = prose(3000);
  for (const Form& form : kForms) {
    if (form.pack("") == "" || std::strcmp(form.name, "frames") == 0) continue;
    SCOPED_TRACE(form.name);
    const std::string whole = form.pack(text);
    for (size_t i = 12; i < whole.size(); i += 7) {
      std::string damaged = whole;
      damaged[i] ^= 0x10;
      TextStream stream(source(damaged));
      try {
        EXPECT_EQ(read_to_end(stream), text);  // in a part of a header that means nothing
      } catch (const UserError& error) {
        expect_contains(error.what(), "'data.txt'");
      }
    }
    TextStream garbage(source(whole + "garbage"));
    expect_contains(user_error([&] { read_to_end(garbage); }), "'data.txt' is ");
  }
}

TEST(TextStream, MemoryIsBounded) {
  const std::string text = prose(1000);
  EXPECT_EQ(unpacked(zstd(text, 3, 27)), text);
  TextStream wide(source(zstd(text, 3, 28)));
  std::string message = user_error([&] { read_to_end(wide); });
  expect_contains(message, "'data.txt': zstd frame 1 needs more than 128.0 MiB");
  expect_contains(message, "--long=27");
  EXPECT_EQ(unpacked(xz(text, SIZE_MAX, 128u << 20)), text);
  TextStream large(source(xz(text, SIZE_MAX, 129u << 20)));
  expect_contains(user_error([&] { read_to_end(large); }),
                  "'data.txt': xz stream 1 needs a dictionary of more than 128.0 MiB");
}

TEST(TextStream, ForeignAndDamagedPositionsAreRefused) {
  const std::string packed = gzip(prose(3 << 20));
  TextStream stream(source(packed));
  std::string part(1 << 20, '\0');
  while (stream.offset() < (2u << 20)) stream.read(part.data(), part.size());
  const std::string position = stream.position();
  auto refused = [&](const std::string& content, std::string_view at) {
    return user_error([&] { TextStream(source(content), at); });
  };
  expect_contains(refused(packed + " ", position), "'data.txt': cannot go on");
  expect_contains(refused(packed + " ", position), "the data has another size");
  expect_contains(refused(packed, "nonsense"), "it is none");
  for (size_t size : {size_t{5}, size_t{20}, position.size() - 1})
    refused(packed, std::string_view(position).substr(0, size));
  for (size_t i = 0; i < position.size(); i += i < 150 ? 1 : 1000) {
    std::string damaged = position;
    damaged[i] ^= 1;
    refused(packed, damaged);
  }
  PositionWriter other('r');
  expect_contains(refused(packed, other.finish()), "another kind of reader");
  // Of the same size: what is read there does not fit, sooner or later.
  std::string shifted = packed.substr(1) + packed[0];
  expect_contains(user_error([&] {
                    TextStream next(source(shifted), position);
                    read_to_end(next);
                  }),
                  "'data.txt'");
  TextStream plain(source("0123456789"));
  plain.read(part.data(), 5);
  std::string at = plain.position();
  EXPECT_LT(at.size(), 100u);
}

}  // namespace
}  // namespace tessera
