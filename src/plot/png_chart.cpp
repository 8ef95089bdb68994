#include "plot/png_chart.h"

#include <dlfcn.h>

#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "plot/svg_chart.h"

#ifdef __SANITIZE_ADDRESS__
// What these know of fonts they keep until the process ends.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libfontconfig\nleak:libpango\nleak:libglib\n";
}
#endif

namespace tessera {
namespace {

// What is called of librsvg 2.52 and later, cairo and GLib: their headers would bring those of some
// twenty packages.
struct RsvgHandle;
struct GError;
struct cairo_surface_t;
struct cairo_t;
struct RsvgRectangle {
  double x, y, width, height;
};

constexpr int kArgb32 = 0;  // CAIRO_FORMAT_ARGB32

// A library and what it loads are never unloaded.
class Drawing {
 public:
  Drawing() {
    library_ = ::dlopen("librsvg-2.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library_)
      throw UserError(cat("cannot draw a PNG image: ", ::dlerror(),
                          "; install librsvg (Debian: the package librsvg2-2), or write an .svg "
                          "or .html file, which need nothing"));
    load(new_from_data, "rsvg_handle_new_from_data");
    load(render_document, "rsvg_handle_render_document");
    load(object_unref, "g_object_unref");
    load(surface_create, "cairo_image_surface_create");
    load(surface_destroy, "cairo_surface_destroy");
    load(create, "cairo_create");
    load(destroy, "cairo_destroy");
    load(set_source_rgb, "cairo_set_source_rgb");
    load(paint, "cairo_paint");
    load(write_png, "cairo_surface_write_to_png_stream");
  }

  RsvgHandle* (*new_from_data)(const uint8_t*, size_t, GError**) = nullptr;
  int (*render_document)(RsvgHandle*, cairo_t*, const RsvgRectangle*, GError**) = nullptr;
  void (*object_unref)(void*) = nullptr;
  cairo_surface_t* (*surface_create)(int format, int width, int height) = nullptr;
  void (*surface_destroy)(cairo_surface_t*) = nullptr;
  cairo_t* (*create)(cairo_surface_t*) = nullptr;
  void (*destroy)(cairo_t*) = nullptr;
  void (*set_source_rgb)(cairo_t*, double, double, double) = nullptr;
  void (*paint)(cairo_t*) = nullptr;
  int (*write_png)(cairo_surface_t*, int (*)(void*, const uint8_t*, unsigned), void*) = nullptr;

 private:
  template <class Function>
  void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));  // also of what it loads
    if (!function)
      throw UserError(cat("cannot draw a PNG image: the librsvg of this machine has no ", name,
                          "; write an .svg or .html file"));
  }
  void* library_ = nullptr;
};

int append(void* text, const uint8_t* bytes, unsigned size) {
  static_cast<std::string*>(text)->append(reinterpret_cast<const char*>(bytes), size);
  return 0;
}

}  // namespace

std::string png_chart(std::span<const Panel> panels) {
  constexpr int kScale = 2;
  static const Drawing library;
  const std::string svg = svg_chart(panels);
  const ChartSize size = chart_size(panels);
  const auto width = static_cast<int>(size.width) * kScale;
  const auto height = static_cast<int>(size.height) * kScale;
  const std::unique_ptr<RsvgHandle, void (*)(void*)> image(
      library.new_from_data(reinterpret_cast<const uint8_t*>(svg.data()), svg.size(), nullptr),
      library.object_unref);
  const std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> surface(
      library.surface_create(kArgb32, width, height), library.surface_destroy);
  const std::unique_ptr<cairo_t, void (*)(cairo_t*)> canvas(library.create(surface.get()),
                                                            library.destroy);
  library.set_source_rgb(canvas.get(), 1, 1, 1);
  library.paint(canvas.get());
  const RsvgRectangle whole{0, 0, static_cast<double>(width), static_cast<double>(height)};
  std::string png;
  // cairo's errors stay with its objects: the last call tells of all before.
  if (!image || !library.render_document(image.get(), canvas.get(), &whole, nullptr) ||
      library.write_png(surface.get(), append, &png) != 0)
    throw UserError("librsvg cannot draw the PNG image; write an .svg or .html file");
  return png;
}

}  // namespace tessera
