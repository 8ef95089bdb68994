#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

// The elements of a short XML answer of S3 that hold text alone, by their paths below the root and
// in their order: {"Upload/Key", "a"}, {"Upload/UploadId", "1"}. UserError that names `where`:
// broken XML, another root, a document type, depth, length.
using S3Answer = std::vector<std::pair<std::string, std::string>>;
S3Answer parse_s3_answer(std::string_view xml, std::string_view root, std::string_view where);

// The first of that path; empty if there is none.
std::string_view find_text(const S3Answer& answer, std::string_view path);

}  // namespace tessera
