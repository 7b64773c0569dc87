# Channels, tasks and links of onbeat for C and C++: find_package(onbeat) gives the targets
# onbeat::onbeat (shared library) and onbeat::static.
get_filename_component(onbeat_libraries "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
get_filename_component(onbeat_prefix "${CMAKE_CURRENT_LIST_DIR}/../@UP@" ABSOLUTE)

if(NOT TARGET onbeat::onbeat)
  add_library(onbeat::onbeat SHARED IMPORTED)
  set_target_properties(onbeat::onbeat PROPERTIES
    IMPORTED_LOCATION "${onbeat_libraries}/libonbeat_c.so.@VERSION@"
    IMPORTED_SONAME "libonbeat_c.so.@SO_VERSION@"
    INTERFACE_INCLUDE_DIRECTORIES "${onbeat_prefix}/include")
endif()
if(NOT TARGET onbeat::static)
  add_library(onbeat::static STATIC IMPORTED)
  set_target_properties(onbeat::static PROPERTIES
    IMPORTED_LOCATION "${onbeat_libraries}/libonbeat_c.a"
    INTERFACE_LINK_LIBRARIES "gcc_s;rt;pthread;m;dl"
    INTERFACE_INCLUDE_DIRECTORIES "${onbeat_prefix}/include")
endif()
