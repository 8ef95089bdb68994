#include <sys/stat.h>

#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "tests/base/scratch_directory.h"
#include "tests/options/option_testing.h"

namespace tessera {
namespace {

using namespace option_testing;

// The words with which an example calls the program: the shell runs the file with a program that
// prints its arguments.
std::vector<std::string> words_of(const std::filesystem::path& example, const std::string& extra) {
  ScratchDirectory scratch;
  auto printer = scratch.write("print_arguments", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n");
  EXPECT_EQ(::chmod(printer.c_str(), 0755), 0);
  std::string command = cat("TESSERA='", printer.string(), "' sh '", example.string(), "' ", extra);
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  std::vector<std::string> words;
  for (std::string_view line : split(output, '\n')) words.emplace_back(line);
  words.pop_back();  // behind the last line end
  return words;
}

TEST(Examples, OptionsBehindTheListWin) {
  auto example = std::filesystem::path(TESSERA_SOURCE_DIR) / "examples/llama2_7b_slurm.sh";
  std::vector<std::string> words = words_of(example, "train --train_batch_size=7");
  EXPECT_EQ(words[0], "train");
  EXPECT_EQ(parse({words.begin() + 1, words.end()}).config.train_batch_size, 7);
}

TEST(Examples, TheConfigurationFileIsTheList) {
  auto examples = std::filesystem::path(TESSERA_SOURCE_DIR) / "examples";
  std::vector<std::string> words = words_of(examples / "llama2_7b_slurm.sh", "plan");
  ParsedOptions list = parse({words.begin() + 1, words.end()});
  ParsedOptions file = parse_files({read_file(examples / "llama2_7b_slurm.toml")});
  file.config.config.clear();
  file.given.erase("config");
  EXPECT_EQ(file.config, list.config);
  for (const auto& [option, origin] : list.given) EXPECT_TRUE(file.is_given(option)) << option;
  EXPECT_EQ(file.given.size(), list.given.size());
}

}  // namespace
}  // namespace tessera
