#include "backends/cuda/product_choices.h"

#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera::cuda {

// Of the source that the build makes of product_choices.txt.
extern const std::string_view kCarriedChoices;

namespace {

constexpr std::string_view kColumns =
    "# device version operands result layout m n k lda ldb ldc align_a align_b align_c adds "
    "workspace algorithm microseconds first_microseconds";
constexpr size_t kWords = 19, kAlgorithmDigits = 128, kMostOfLine = 1024;
constexpr size_t kMostOfName = 128;
constexpr int64_t kLargest = int64_t{1} << 40;
constexpr double kLongest = 1e9;  // microseconds

std::string_view adds(const ProductProblem& p) {
  return p.bias && p.accumulate ? "bias+c" : p.bias ? "bias" : p.accumulate ? "c" : "nothing";
}

// All that a choice depends on.
std::string key_of(std::string_view device, int64_t version, const ProductProblem& p) {
  return cat(device, " ", version, " ", name(p.operands), " ", name(p.result), " ",
             p.transpose_a ? "t" : "n", p.transpose_b ? "t" : "n", " ", p.m, " ", p.n, " ", p.k,
             " ", p.lda, " ", p.ldb, " ", p.ldc, " ", p.align_a, " ", p.align_b, " ", p.align_c,
             " ", adds(p));
}

// The words of one line.
class Line {
 public:
  Line(std::string_view text, const std::string& where) : where_(where) {
    for (std::string_view word : split(text, ' '))
      if (!word.empty()) words_.push_back(word);
    if (words_.size() != kWords)
      refuse(cat("has ", words_.size(), " words, not the ", kWords, " of a product"));
  }
  std::string_view word() { return words_[next_++]; }
  int64_t integer(std::string_view what, int64_t least, int64_t most) {
    const std::string_view text = word();
    const auto value = parse_number<int64_t>(text);
    if (!value || *value < least || *value > most)
      refuse(cat(what, " is '", text, "', not a number from ", least, " to ", most));
    return *value;
  }
  int64_t alignment(std::string_view what) {
    const int64_t value = integer(what, 1, kPlacedAlignment);
    if ((value & (value - 1)) != 0) refuse(cat(what, " is ", value, ", no power of two"));
    return value;
  }
  double time(std::string_view what) {
    const std::string_view text = word();
    const auto value = parse_number<double>(text);
    if (!value || !(*value >= 0 && *value <= kLongest))
      refuse(cat(what, " is '", text, "', no time"));
    return *value;
  }
  DType dtype(std::string_view what) {
    const std::string_view text = word();
    if (text == "f32") return DType::kF32;
    if (text != "bf16") refuse(cat(what, " is '", text, "', not f32 or bf16"));
    return DType::kBF16;
  }
  [[noreturn]] void refuse(const std::string& why) const { throw UserError(cat(where_, why)); }

 private:
  const std::string& where_;
  std::vector<std::string_view> words_;
  size_t next_ = 0;
};

void read_layout(Line& line, ProductProblem& p) {
  const std::string_view layout = line.word();
  if (layout.size() != 2 || layout.find_first_not_of("nt") != layout.npos)
    line.refuse(cat("the layout is '", layout, "', not nn, nt, tn or tt"));
  p.transpose_a = layout[0] == 't';
  p.transpose_b = layout[1] == 't';
}

void read_adds(Line& line, ProductProblem& p) {
  const std::string_view text = line.word();
  p.bias = text == "bias" || text == "bias+c";
  p.accumulate = text == "c" || text == "bias+c";
  if (text != adds(p)) line.refuse(cat("'", text, "' is not nothing, bias, c or bias+c"));
}

void read_algorithm(Line& line, std::array<uint64_t, 8>& algorithm) {
  const std::string_view text = line.word();
  if (text.size() != kAlgorithmDigits)
    line.refuse(cat("the algorithm has ", text.size(), " digits, not ", kAlgorithmDigits));
  for (size_t i = 0; i < algorithm.size(); ++i) {
    const auto word = parse_number<uint64_t>(text.substr(i * 16, 16), 16);
    if (!word) line.refuse("the algorithm is not in hexadecimal digits");
    algorithm[i] = *word;
  }
}

ProductChoice read_choice(Line line) {
  ProductChoice choice;
  ProductProblem& p = choice.problem;
  choice.device = line.word();
  if (choice.device.size() > kMostOfName) line.refuse("the device's name is too long");
  choice.version = line.integer("the version", 1, 1'000'000'000);
  p.operands = line.dtype("the operands' dtype");
  p.result = line.dtype("the result's dtype");
  if (p.result != DType::kF32 && p.result != p.operands)
    line.refuse("the result is neither f32 nor of the operands' dtype");
  read_layout(line, p);
  p.m = line.integer("m", 1, kLargest);
  p.n = line.integer("n", 1, kLargest);
  p.k = line.integer("k", 1, kLargest);
  p.lda = line.integer("lda", p.transpose_a ? p.m : p.k, kLargest);
  p.ldb = line.integer("ldb", p.transpose_b ? p.k : p.n, kLargest);
  p.ldc = line.integer("ldc", p.n, kLargest);
  p.align_a = line.alignment("align_a");
  p.align_b = line.alignment("align_b");
  p.align_c = line.alignment("align_c");
  read_adds(line, p);
  choice.workspace_bytes =
      line.integer("the workspace", 0, kLibraryWorkspaceBytes - kWorkspacePadding);
  read_algorithm(line, choice.algorithm);
  choice.microseconds = line.time("the time");
  choice.first_microseconds = line.time("the first's time");
  return choice;
}

std::string key_of(const ProductChoice& choice) {
  return key_of(choice.device, choice.version, choice.problem);
}

}  // namespace

ProductChoices ProductChoices::parse(std::string_view text, const std::string& origin) {
  if (text.size() > kMostBytes)
    throw UserError(
        cat(origin, " has ", text.size(), " bytes: choices of products have at most ", kMostBytes));
  ProductChoices all;
  if (take_line(text) != kHead)
    throw UserError(cat(origin, ": the first line is not '", kHead, "'"));
  for (int64_t number = 2; !text.empty(); ++number) {
    const std::string_view line = take_line(text);
    const std::string where = cat(origin, ", line ", number, ": ");
    if (line.size() > kMostOfLine) throw UserError(cat(where, "longer than any product"));
    if (line.empty() || line[0] == '#') continue;
    for (char c : line)
      if (c < ' ' || c > '~') throw UserError(cat(where, "a character that is no text"));
    ProductChoice choice = read_choice(Line(line, where));
    if (!all.choices_.try_emplace(key_of(choice), choice).second)
      throw UserError(cat(where, "this product has a line already"));
  }
  return all;
}

ProductChoices ProductChoices::of_folder(const std::filesystem::path& folder) {
  ProductChoices all = parse(kCarriedChoices, "product_choices.txt");
  const std::filesystem::path path = folder / kFileName;
  std::error_code error;
  if (folder.empty() || !std::filesystem::exists(path, error)) return all;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error || bytes > kMostBytes)
    throw UserError(cat("'", path.string(), "' is no file of at most ", kMostBytes, " bytes"));
  for (auto& [key, choice] : parse(read_file(path), cat("'", path.string(), "'")).choices_)
    all.add(std::move(choice));
  return all;
}

void ProductChoices::add(ProductChoice choice) {
  std::string key = key_of(choice);
  choices_.insert_or_assign(std::move(key), std::move(choice));
}

const ProductChoice* ProductChoices::find(std::string_view device, int64_t version,
                                          const ProductProblem& problem) const {
  const auto found = choices_.find(key_of(device, version, problem));
  return found == choices_.end() ? nullptr : &found->second;
}

std::optional<int64_t> ProductChoices::newest_version(std::string_view device) const {
  std::optional<int64_t> newest;
  for (const auto& [key, choice] : choices_)
    if (choice.device == device && (!newest || choice.version > *newest)) newest = choice.version;
  return newest;
}

int64_t ProductChoices::count(std::string_view device, int64_t version) const {
  int64_t count = 0;
  for (const auto& [key, choice] : choices_)
    count += choice.device == device && choice.version == version;
  return count;
}

std::string ProductChoices::to_text() const {
  std::string text = cat(kHead, "\n", kColumns, "\n");
  for (const auto& [key, choice] : choices_) {
    text += cat(key, " ", choice.workspace_bytes, " ");
    for (uint64_t word : choice.algorithm)
      text += format("%016llx", static_cast<unsigned long long>(word));
    text += format(" %.3f %.3f\n", choice.microseconds, choice.first_microseconds);
  }
  return text;
}

std::string choice_device(std::string_view driver_name) {
  std::string text;
  for (char c : driver_name) text += c > ' ' && c <= '~' ? c : '_';
  return text;
}

}  // namespace tessera::cuda
