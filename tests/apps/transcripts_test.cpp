// What the documentation shows of the program's output is what the program prints today. In a page
// the words `<!-- run -->` stand before a block with a command and `<!-- run: tessera ... -->` for
// one that is not shown, `<!-- fails: tessera ... -->` for one that ends with an error;
// `<!-- shows: FILE -->` stands before a block of lines from a file of the commands' directory, or
// from `stdout` or `stderr` of the commands since the last such block. Lines stand in their order;
// a line `...` is for people, within a line it is any text, and behind five spaces may be a note.
// `<!-- file: NAME -->` makes a file of the block behind it, `<!-- file: NAME TEXT -->` one that is
// not shown, with \n and \xNN in TEXT.
#include <gtest/gtest.h>

#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(std::string_view text) {
  Lines lines;
  for (std::string_view line : split(text, '\n')) lines.emplace_back(line);
  return lines;
}

bool fits_pattern(std::string_view line, std::string_view pattern) {
  size_t at = 0, dots = pattern.find("...");
  if (dots == std::string_view::npos) return line == pattern;
  for (bool first = true; dots != std::string_view::npos; first = false) {
    std::string_view part = pattern.substr(0, dots);
    size_t found = line.find(part, at);
    if (found == std::string_view::npos || (first && found != 0)) return false;
    at = found + part.size();
    pattern.remove_prefix(dots + 3);
    dots = pattern.find("...");
  }
  return line.size() >= at + pattern.size() && line.ends_with(pattern);
}

bool fits(std::string_view line, std::string_view shown) {
  line = trim(line);
  shown = trim(shown);
  if (fits_pattern(line, shown)) return true;
  size_t note = shown.rfind("     ");
  return note != std::string_view::npos && fits_pattern(line, trim(shown.substr(0, note)));
}

std::string unescaped(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string_view rest = text.substr(i);
    if (rest.starts_with("\\n")) {
      bytes += '\n';
      i += 1;
    } else if (rest.starts_with("\\x")) {
      bytes += static_cast<char>(std::stoi(std::string(rest.substr(2, 2)), nullptr, 16));
      i += 3;
    } else {
      bytes += text[i];
    }
  }
  return bytes;
}

class Transcripts : public ProgramTest, public testing::WithParamInterface<const char*> {
 protected:
  // The lines of the block, fenced or indented, that begins behind line `at`.
  static Lines block(const Lines& page, size_t at) {
    while (++at < page.size() && page[at].empty()) {
    }
    Lines lines;
    if (page[at].starts_with("```")) {
      while (++at < page.size() && !page[at].starts_with("```")) lines.push_back(page[at]);
    } else {
      for (; at < page.size() && page[at].starts_with("    "); ++at) lines.push_back(page[at]);
    }
    return lines;
  }

  void execute(const std::string& command, bool fails = false) {
    Words words;
    for (std::string_view word : split(command, ' '))
      if (!trim(word).empty() && trim(word) != "\\") words.emplace_back(trim(word));
    ASSERT_FALSE(words.empty());
    ASSERT_EQ(words[0], "tessera");
    words.erase(words.begin());
    ProgramResult result = run(words);
    EXPECT_EQ(result.status != 0, fails) << command << '\n' << result.err;
    write("stdout", out_ += result.out);
    write("stderr", err_ += result.err);
  }

  void make_file(std::string_view name_and_text, const Lines& page, size_t at) {
    size_t blank = name_and_text.find(' ');
    bool shown = blank == std::string_view::npos;
    std::string name(name_and_text.substr(0, blank));
    std::filesystem::create_directories(path(name).parent_path());
    write(name,
          shown ? join(block(page, at), "\n") + "\n" : unescaped(name_and_text.substr(blank + 1)));
  }

  void compare(const std::string& file, const Lines& shown) {
    ASSERT_TRUE(exists(file)) << file;
    Lines lines = lines_of(read_file(path(file)));
    auto at = lines.begin();
    for (const std::string& line : shown) {
      if (trim(line).empty() || trim(line) == "...") continue;
      auto found = std::find_if(at, lines.end(), [&](auto& real) { return fits(real, line); });
      EXPECT_NE(found, lines.end()) << file << " has no such line behind the one before:\n" << line;
      if (found != lines.end()) at = found + 1;
    }
    out_ = err_ = "";
  }

 private:
  std::string out_, err_;  // of the commands since the last comparison
};

TEST_P(Transcripts, AreWhatTheProgramPrints) {
  Lines page = lines_of(read_file(cat(TESSERA_SOURCE_DIR, "/", GetParam())));
  int shown = 0;
  for (size_t i = 0; i < page.size(); ++i) {
    std::string_view line = page[i];
    if (!line.starts_with("<!-- ") || !line.ends_with(" -->")) continue;
    line = line.substr(5, line.size() - 9);
    if (line == "run") {
      execute(join(block(page, i), " "));
    } else if (line.starts_with("run: ")) {
      execute(std::string(line.substr(5)));
    } else if (line.starts_with("fails: ")) {
      execute(std::string(line.substr(7)), true);
    } else if (line.starts_with("file: ")) {
      make_file(line.substr(6), page, i);
    } else if (line.starts_with("shows: ")) {
      SCOPED_TRACE(cat(GetParam(), ":", i + 1));
      Lines lines = block(page, i);
      EXPECT_FALSE(lines.empty());
      compare(std::string(line.substr(7)), lines);
      ++shown;
    }
  }
  EXPECT_GT(shown, 0);
}

INSTANTIATE_TEST_SUITE_P(Pages, Transcripts,
                         testing::Values("README.md", "docs/checkpoints.md",
                                         "docs/configuration_files.md", "docs/errors.md",
                                         "docs/explain.md", "docs/fine_tuning.md",
                                         "docs/reproducibility.md", "docs/tour_of_a_step.md"),
                         [](const auto& page) {
                           std::string name = page.param;
                           std::ranges::replace_if(
                               name, [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace tessera
