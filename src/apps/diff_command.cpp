#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/text.h"

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

// The results of a run, one a line.
class HashFile {
 public:
  explicit HashFile(const std::string& path) : path_(path), file_(path) {
    if (!file_ || std::filesystem::is_directory(path)) {
      throw UserError(cat("cannot read '", path,
                          "': give the file that --hash_file wrote; two checkpoints are compared "
                          "by tessera checkpoint diff"));
    }
  }
  const std::string& path() const { return path_; }
  const std::string& line() const { return line_; }

  bool next() {
    if (!std::getline(file_, line_)) return false;
    ++number_;
    if (std::ranges::count(line_, '\t') == 6) return true;
    throw UserError(
        cat("'", path_, "', line ", number_, ": this is not a file that --hash_file wrote"));
  }

  // "step 3, op 17: swiglu in layers.0.mlp (forward), output 0"
  std::string describe() const {
    std::vector<std::string_view> f = split(line_, '\t');
    return cat("step ", f[0], ", op ", f[1], ": ", f[4], f[2].empty() ? "" : " in ", f[2], " (",
               f[3], "), output ", f[5]);
  }

 private:
  std::string path_;
  std::ifstream file_;
  std::string line_;
  int64_t number_ = 0;
};

// The first difference in words; "" if there is none. Counts the results that are equal before it.
std::string first_difference(HashFile& a, HashFile& b, int64_t& equal) {
  for (equal = 0;; ++equal) {
    bool more_a = a.next(), more_b = b.next();
    if (!more_a && !more_b) return "";
    if (more_a != more_b) {
      return cat((more_a ? b : a).path(), " ends after ", equal,
                 " results, all equal so far; the other goes on with ",
                 (more_a ? a : b).describe());
    }
    if (a.line() == b.line()) continue;
    std::string left = a.describe(), right = b.describe();
    if (left == right)
      return cat("first difference: ", left, " (", equal, " results before it are equal)");
    return cat("the programs differ after ", equal, " equal results:\n  ", a.path(), ": ", left,
               "\n  ", b.path(), ": ", right);
  }
}

}  // namespace

int diff_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kDiff);
  if (parsed.help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  if (parsed.words.size() != 2) throw UsageError("diff takes two files: tessera diff RUN RUN");
  HashFile a(parsed.words[0]), b(parsed.words[1]);
  int64_t equal = 0;
  std::string difference = first_difference(a, b, equal);
  if (difference.empty() && equal == 0)
    throw UserError(cat("'", a.path(), "' and '", b.path(), "' hold no results: no step was done"));
  std::printf("%s\n",
              difference.empty() ? cat("equal: ", equal, " results").c_str() : difference.c_str());
  return difference.empty() ? 0 : 1;
}

}  // namespace tessera
