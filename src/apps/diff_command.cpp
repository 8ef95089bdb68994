#include <cstdio>
#include <filesystem>
#include <fstream>

#include "apps/commands.h"
#include "base/error.h"
#include "base/text.h"
#include "train/option_parser.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera diff RUN RUN

Finds the first op whose results differ between two runs. RUN is the file that `tessera train --hash_file FILE`
wrote: a hash of every op's output at every step. Exit status 0: all equal; 1: a difference.

Example
  tessera train ... --threads 1 --hash_file one.tsv
  tessera train ... --threads 2 --hash_file two.tsv
  tessera diff one.tsv two.tsv
)";

std::ifstream open(const std::string& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) throw UserError(cat("cannot read '", path, "': give the file that --hash_file wrote"));
  return file;
}

std::string describe_line(const std::string& line) {
  std::vector<std::string_view> f = split(line, '\t');
  if (f.size() != 7) throw UserError("this is not a file that --hash_file wrote");
  return cat("step ", f[0], ", op ", f[1], ": ", f[4], f[2].empty() ? "" : " in ", f[2], " (", f[3], "), output ", f[5]);
}

}  // namespace

int diff_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_options(arguments, OptionScope::kDiff);
  if (parsed.help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  if (parsed.words.size() != 2) throw UsageError("diff takes two files: tessera diff RUN RUN");
  std::ifstream a = open(parsed.words[0]), b = open(parsed.words[1]);
  std::string x, y;
  int64_t equal = 0;
  for (;; ++equal) {
    bool more_a = static_cast<bool>(std::getline(a, x)), more_b = static_cast<bool>(std::getline(b, y));
    if (!more_a && !more_b) break;
    if (more_a != more_b) {
      std::printf("%s ends after %lld results, all equal so far; the other goes on with %s\n", parsed.words[more_a ? 1 : 0].c_str(), static_cast<long long>(equal),
                  describe_line(more_a ? x : y).c_str());
      return 1;
    }
    if (x == y) continue;
    std::string left = describe_line(x), right = describe_line(y);
    if (left == right) std::printf("first difference: %s (%lld results before it are equal)\n", left.c_str(), static_cast<long long>(equal));
    else std::printf("the programs differ after %lld equal results:\n  %s: %s\n  %s: %s\n", static_cast<long long>(equal), parsed.words[0].c_str(), left.c_str(), parsed.words[1].c_str(), right.c_str());
    return 1;
  }
  std::printf("equal: %lld results\n", static_cast<long long>(equal));
  return 0;
}

}  // namespace tessera
