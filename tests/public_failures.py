"""Faults that people report in public when they train Keras from HDF5: number -> what, and the tests that hold it.

The numbers are those of ``helpers/known_errors.toml`` and ``notebooks/ERRORS.md``.
"""

from __future__ import annotations

from typing import NamedTuple


class PublicFailure(NamedTuple):
    """What goes wrong, and the tests that fail when the kit lets it happen (file::function, from the folder tests)."""

    what: str
    tests: tuple[str, ...]


PUBLIC_FAILURES = {
    "A1": PublicFailure(
        "one handle opened before the fork and shared by all workers",
        (
            "unit/test_reader.py::test_child_opens_its_own_handle",
            "unit/test_direct.py::test_forked_child_has_a_descriptor_of_its_own",
            "unit/test_handles_between_processes.py::test_a_forked_child_that_closes_or_ends_takes_nothing_from_its_parent",
            "unit/test_handles_between_processes.py::test_a_forked_writer_refuses_to_write",
        ),
    ),
    "A2": PublicFailure(
        "a handle opened on first use, which Keras' parent process opens first",
        (
            "unit/test_sequence.py::test_child_processes_serve_the_same_batches",
            "unit/test_reader.py::test_child_opens_its_own_handle",
            "unit/test_direct.py::test_child_reads_without_hdf5",
            "unit/test_handles_between_processes.py::test_a_relative_name_means_the_folder_of_the_moment_it_was_given",
        ),
    ),
    "A3": PublicFailure(
        "an open handle in a pickle",
        (
            "unit/test_sequence.py::test_pickle_before_and_after_use",
            "unit/test_handles_between_processes.py::test_a_copy_of_a_used_reader_and_the_reader_live_on_without_each_other",
            "unit/test_ends_of_training.py::test_a_sequence_pickles_in_the_middle_of_a_training",
            "unit/test_direct.py::test_pickle_carries_places_and_no_descriptor",
        ),
    ),
    "A4": PublicFailure(
        "threads that read no faster",
        (
            "unit/test_direct.py::test_hdf5_is_not_touched",
            "unit/test_direct.py::test_eight_threads_share_a_reader",
            "unit/test_handles_between_processes.py::test_a_file_is_opened_once_a_process_not_once_a_batch",
            "unit/test_handles_between_processes.py::test_threads_that_read_and_one_that_closes_end_in_one_of_two_ways",
        ),
    ),
    "A5": PublicFailure(
        "memory that climbs while training",
        (
            "unit/test_public_failures.py::test_memory_stands_still_from_epoch_to_epoch",
            "unit/test_handles_between_processes.py::test_pools_leave_no_descriptor_and_no_thread",
            "unit/test_handles_between_processes.py::test_a_file_is_opened_once_a_process_not_once_a_batch",
            "faults/test_consumers.py::test_shared_memory_is_used_again",
        ),
    ),
    "A6": PublicFailure(
        "a dataset used after its file was closed",
        (
            "unit/test_public_failures.py::test_an_hdf5_object_in_place_of_a_path_is_refused",
            "unit/test_handles_between_processes.py::test_every_door_that_takes_a_path_refuses_an_hdf5_object",
            "unit/test_ends_of_training.py::test_an_hdf5_object_in_place_of_a_generator_is_refused",
            "unit/test_handles_between_processes.py::test_a_reader_closed_in_the_middle_of_a_read_says_so",
        ),
    ),
    "B1": PublicFailure(
        "a disk without locks",
        (
            "unit/test_public_failures.py::test_a_disk_without_locks_is_explained_and_can_be_used",
            "unit/test_public_failures.py::test_every_error_of_a_disk_without_locks_is_explained",
            "unit/test_direct.py::test_a_disk_without_locks_is_read",
            "unit/test_disks.py::test_locks_are_refused_and_the_rest_works",
        ),
    ),
    "B2": PublicFailure(
        "two openers of one file",
        (
            "unit/test_public_failures.py::test_a_build_does_not_disturb_a_training_that_reads_the_older_file",
            "unit/test_bad_paths.py::test_a_file_that_a_writer_holds_is_in_use_for_all",
            "unit/test_public_failures.py::test_a_file_that_another_process_writes_names_the_likely_holder",
            "unit/test_bad_paths.py::test_resuming_does_not_replace_a_file_that_is_in_use",
        ),
    ),
    "B3": PublicFailure(
        "a file that is truncated, never closed, or not HDF5",
        (
            "unit/test_public_failures.py::test_a_broken_file_is_one_plain_sentence_whoever_opens_it",
            "unit/test_public_failures.py::test_a_killed_build_leaves_nothing_under_the_final_name",
            "unit/test_bad_paths.py::test_whoever_opens_a_bad_path_says_the_same",
            "unit/test_bad_paths.py::test_whoever_makes_a_file_refuses_a_bad_name_alike",
        ),
    ),
    "B4": PublicFailure(
        "a file that opens, with a tail that was never written",
        (
            "unit/test_public_failures.py::test_a_tail_that_was_never_written_is_found_and_not_trained_on",
            "unit/test_public_failures.py::test_a_part_that_is_not_complete_is_not_trained_on",
            "unit/test_batches.py::test_images_never_written_are_refused",
            "unit/test_rows_and_labels.py::test_labels_in_a_chunk_that_hdf5_does_not_find_are_an_error",
        ),
    ),
    "B5": PublicFailure(
        "a cell that is run again while the file of its first run is open",
        (
            "unit/test_public_failures.py::test_a_failed_cell_runs_again_without_a_new_kernel",
            "unit/test_build_resume.py::test_a_failed_notebook_cell_can_be_run_again",
            "unit/test_writer.py::test_after_an_exception_the_older_file_is_untouched",
            "unit/test_bad_paths.py::test_a_killed_writer_of_every_format_is_replaced_by_the_next_build",
        ),
    ),
    "C1": PublicFailure(
        "a generator class defined in the notebook",
        (
            "unit/test_workers.py::test_processes_answer_for_a_function_that_cannot_be_imported",
            "unit/test_workers.py::test_what_cannot_travel_to_a_process_is_refused_by_name",
            "unit/test_ends_of_training.py::test_a_subclass_whose_method_would_not_be_called_is_refused",
            "faults/test_worker_functions.py::test_a_program_from_standard_input_has_workers",
        ),
    ),
    "C2": PublicFailure(
        "start methods and the main guard",
        (
            "unit/test_workers.py::test_a_script_needs_no_main_guard_and_its_workers_load_no_keras",
            "faults/test_worker_functions.py::test_the_start_method_of_a_program_does_not_matter",
            "faults/test_worker_functions.py::test_a_module_that_trains_when_it_is_imported_starts_no_chain_of_workers",
            "unit/test_sequence.py::test_child_processes_serve_the_same_batches",
        ),
    ),
    "C3": PublicFailure(
        "a fork beside threads",
        (
            "unit/test_public_failures.py::test_each_worker_process_is_new_light_and_blind_to_the_gpu",
            "unit/test_workers.py::test_no_answer_in_time_is_an_error_with_the_stack_of_the_worker",
            "unit/test_public_failures.py::test_threads_are_the_default_and_as_many_as_asked",
            "unit/test_ends_of_training.py::test_processes_of_keras_are_warned_of",
        ),
    ),
    "C4": PublicFailure(
        "CUDA in a worker",
        (
            "unit/test_public_failures.py::test_each_worker_process_is_new_light_and_blind_to_the_gpu",
            "unit/test_architecture.py::test_what_workers_import_is_light",
            "unit/test_workers.py::test_a_worker_that_makes_batches_imports_four_packages_and_the_kit",
        ),
    ),
    "C5": PublicFailure(
        "a worker that dies",
        (
            "faults/test_dead_workers.py::test_a_dead_worker_is_an_error_that_says_all",
            "unit/test_ends_of_training.py::test_a_validation_worker_that_dies_while_idle_is_told_at_once",
            "faults/test_worker_functions.py::test_what_no_except_clause_catches_names_the_worker_and_the_item",
            "unit/test_workers.py::test_an_idle_worker_that_dies_is_noticed",
        ),
    ),
    "C6": PublicFailure(
        "an exception in __getitem__ or a hook",
        (
            "unit/test_public_failures.py::test_an_error_in_a_worker_process_comes_fast_and_whole",
            "unit/test_ends_of_training.py::test_whatever_augment_raises_ends_training_as_itself",
            "unit/test_public_failures.py::test_an_error_in_on_epoch_end_ends_plain_fit",
            "faults/test_worker_functions.py::test_an_odd_exception_of_a_worker_process_is_no_death",
        ),
    ),
    "C7": PublicFailure(
        "a run that leaves workers, or never exits",
        (
            "faults/test_interrupts.py::test_ctrl_c_ends_training_and_leaves_nothing",
            "faults/test_script_ends.py::test_a_script_ends_promptly_and_leaves_nothing",
            "unit/test_ends_of_training.py::test_an_interrupt_ends_the_workers_of_somebody_elses_dataset",
            "faults/test_killed_parents.py::test_workers_and_memory_go_with_their_parent",
        ),
    ),
    "D1": PublicFailure(
        "calls and arguments of Keras 2",
        (
            "unit/test_training.py::test_unknown_arguments_are_refused",
            "unit/test_silent_settings.py::test_as_many_threads_work_as_were_asked_for",
            "unit/test_silent_settings.py::test_a_dataset_without_its_constructor_works_with_all_its_workers",
            "unit/test_silent_settings.py::test_the_call_has_the_arguments_of_the_classic_one",
        ),
    ),
    "D2": PublicFailure(
        "a length that is a float or zero",
        (
            "unit/test_silent_settings.py::test_lengths_are_whole_and_count_what_is_served",
            "unit/test_silent_settings.py::test_data_of_an_impossible_length_is_refused",
            "unit/test_silent_settings.py::test_what_is_no_count_is_refused",
            "unit/test_training.py::test_a_refused_call_leaves_the_position",
        ),
    ),
    "D3": PublicFailure(
        "the last batch, and indices out of range, repeated, out of order",
        (
            "unit/test_silent_settings.py::test_batches_come_the_same_in_any_order_and_again",
            "unit/test_order.py::test_every_row_once_per_epoch",
            "unit/test_sequence.py::test_batch_outside_the_epoch_is_an_index_error",
            "unit/test_order.py::test_drop_last_leaves_out_the_partial_batch",
        ),
    ),
    "D4": PublicFailure(
        "a plain generator that runs dry",
        (
            "unit/test_training.py::test_a_generator_that_runs_dry_is_an_error",
            "unit/test_silent_settings.py::test_a_generator_that_runs_dry_leaves_no_empty_epoch",
            "unit/test_training.py::test_a_validation_generator_that_runs_dry_is_an_error",
            "unit/test_silent_settings.py::test_a_call_that_trains_no_epoch_is_refused",
        ),
    ),
    "D5": PublicFailure(
        "steps below the length, with workers",
        (
            "unit/test_epochs_and_steps.py::test_the_model_receives_the_endless_stream",
            "unit/test_training.py::test_step_k_of_epoch_e_is_item_e_times_steps_plus_k",
            "unit/test_training.py::test_another_pydataset_with_workers_and_few_steps_is_warned_about",
            "unit/test_silent_settings.py::test_a_run_that_was_cut_off_goes_on_in_the_stream",
        ),
    ),
    "D6": PublicFailure(
        "on_epoch_begin runs after the workers started",
        (
            "unit/test_silent_settings.py::test_a_slow_on_epoch_begin_changes_no_epoch",
            "unit/test_epochs_and_steps.py::test_plain_fit_receives_epoch_by_epoch",
            "unit/test_sequence.py::test_plain_fit_trains_each_epoch_in_its_own_order",
        ),
    ),
    "D7": PublicFailure(
        "one plain generator and several workers",
        (
            "unit/test_silent_settings.py::test_a_generator_for_several_workers_is_refused",
            "unit/test_training.py::test_a_bad_call_with_a_generator_is_refused",
            "unit/test_sequence.py::test_threads_serve_the_same_batches",
            "unit/test_training.py::test_worker_processes_serve_the_same_stream",
        ),
    ),
    "D8": PublicFailure(
        "what fit(shuffle=True) shuffles",
        (
            "unit/test_silent_settings.py::test_rows_are_mixed_and_not_the_batches_alone",
            "unit/test_training.py::test_a_bad_call_is_refused_before_training",
            "unit/test_public_failures.py::test_global_random_numbers_are_neither_used_nor_moved",
            "unit/test_silent_settings.py::test_shuffle_is_yes_or_no",
        ),
    ),
    "D9": PublicFailure(
        "numbers that train_on_batch returns",
        (
            "unit/test_silent_settings.py::test_numbers_of_a_batch_are_its_own",
            "unit/test_silent_settings.py::test_the_loss_of_an_epoch_is_the_mean_over_its_images",
            "unit/test_public_failures.py::test_train_on_batch_tells_the_loss_of_its_own_batch",
        ),
    ),
    "D10": PublicFailure(
        "names of checkpoints and monitors",
        (
            "unit/test_preflight.py::test_a_monitor_that_is_never_reported_is_refused",
            "unit/test_silent_settings.py::test_the_names_to_monitor_are_those_that_are_reported",
            "unit/test_silent_settings.py::test_a_file_name_that_cannot_be_filled_in_is_refused",
            "unit/test_silent_settings.py::test_the_lessons_save_models_under_names_that_keras_takes",
        ),
    ),
    "E1": PublicFailure(
        "the same random numbers in every worker and epoch",
        (
            "unit/test_public_failures.py::test_no_two_rows_and_no_two_epochs_draw_the_same_numbers",
            "unit/test_augment_borders.py::test_epochs_and_seeds_draw_anew",
            "unit/test_augment_borders.py::test_an_image_draws_the_same_however_it_is_served",
            "unit/test_augment_borders.py::test_shards_draw_as_one_process_does",
        ),
    ),
    "E2": PublicFailure(
        "uint8 arithmetic",
        (
            "unit/test_augment_borders.py::test_every_pixel_value_is_as_bright_as_in_floats",
            "unit/test_augment.py::test_each_change_alone_keeps_type_and_input",
            "unit/test_augment_borders.py::test_a_function_that_gives_no_image_is_refused_at_once",
            "unit/test_augment_borders.py::test_an_image_in_any_memory_is_changed_alike",
        ),
    ),
    "E3": PublicFailure(
        "labels separated from their images",
        (
            "unit/test_augment_borders.py::test_the_label_is_in_the_pixels_at_every_border",
            "unit/test_sequence.py::test_every_image_comes_once_with_its_own_label",
            "unit/test_silent_settings.py::test_images_without_their_labels_are_refused",
        ),
    ),
    "E4": PublicFailure(
        "ImageDataGenerator: moved, or without SciPy",
        (
            "unit/test_augment_borders.py::test_augmentation_needs_nothing_but_numpy_and_opencv",
            "unit/test_augment_borders.py::test_a_worker_process_augments_without_scipy",
            "unit/test_architecture.py::test_what_workers_import_is_light",
        ),
    ),
    "F1": PublicFailure(
        "lists of rows as an index",
        (
            "unit/test_public_failures.py::test_row_lists_that_hdf5_refuses_are_served_in_the_order_asked_for",
            "unit/test_public_failures.py::test_no_list_of_rows_ever_reaches_hdf5",
            "unit/test_rows_and_labels.py::test_whole_numbers_of_any_form_are_rows",
            "unit/test_rows_and_labels.py::test_what_is_no_row_is_refused_by_its_form",
        ),
    ),
    "F2": PublicFailure(
        "sorted reads, unsorted labels",
        (
            "unit/test_public_failures.py::test_labels_keep_to_their_images_in_any_order",
            "unit/test_sequence.py::test_every_image_comes_once_with_its_own_label",
            "unit/test_rows_and_labels.py::test_whole_numbers_of_any_form_are_rows",
        ),
    ),
    "F3": PublicFailure(
        "automatic chunk shapes",
        (
            "unit/test_public_failures.py::test_the_builder_never_leaves_chunks_to_hdf5",
            "unit/test_writer.py::test_chunks_hold_one_image_and_many_labels",
            "unit/test_rows_and_labels.py::test_rows_are_right_in_every_layout",
        ),
    ),
    "F4": PublicFailure(
        "chunks above the cache, slow compression",
        (
            "unit/test_public_failures.py::test_a_chunk_above_the_cache_is_warned_of_and_inflated_once_a_batch",
            "unit/test_direct.py::test_each_chunk_is_inflated_once",
            "unit/test_rows_and_labels.py::test_chunks_that_deny_their_filters_are_an_error",
        ),
    ),
    "F5": PublicFailure(
        "a file sorted by class",
        (
            "unit/test_public_failures.py::test_a_class_sorted_folder_becomes_a_mixed_file",
            "unit/test_splits.py::test_every_block_of_rows_is_a_mix_of_classes",
            "unit/test_order.py::test_block_shuffle_touches_few_blocks_at_a_time",
        ),
    ),
    "F6": PublicFailure(
        "the whole set in memory after all",
        (
            "unit/test_public_failures.py::test_a_file_larger_than_the_memory_is_built_and_read",
            "unit/test_writer.py::test_memory_does_not_depend_on_the_number_of_rows",
            "unit/test_public_failures.py::test_memory_stands_still_from_epoch_to_epoch",
            "unit/test_rechunk.py::test_memory_does_not_depend_on_the_input",
        ),
    ),
    "G1": PublicFailure(
        "grey, CMYK, palette, transparent and broken pictures",
        (
            "unit/test_public_failures.py::test_a_folder_with_every_fault_becomes_a_correct_file",
            "unit/test_public_failures.py::test_a_folder_with_faults_can_stop_the_build_instead",
            "unit/test_images.py::test_every_kind_becomes_rgb_of_the_right_colour",
            "unit/test_bad_paths.py::test_a_device_is_no_picture",
        ),
    ),
    "G2": PublicFailure(
        "class numbers from the order of folders",
        (
            "unit/test_public_failures.py::test_class_numbers_do_not_depend_on_the_order_of_the_folder",
            "unit/test_rows_and_labels.py::test_training_and_validation_number_their_classes_alike",
            "unit/test_rows_and_labels.py::test_names_without_an_order_of_their_own_are_no_names",
            "unit/test_rows_and_labels.py::test_given_names_keep_to_the_order_of_the_file",
        ),
    ),
    "G3": PublicFailure(
        "one-hot rows of changing width",
        (
            "unit/test_public_failures.py::test_one_hot_rows_are_as_wide_as_the_class_list",
            "unit/test_public_failures.py::test_labels_that_start_at_one_are_refused",
            "unit/test_rows_and_labels.py::test_any_number_of_classes_comes_back",
            "unit/test_rows_and_labels.py::test_labels_that_mean_something_else_are_refused",
        ),
    ),
    "H1": PublicFailure(
        "class weights that are ignored",
        (
            "unit/test_preflight.py::test_class_weights_that_keras_would_misread_are_refused",
            "unit/test_silent_settings.py::test_weights_that_would_count_as_others_are_refused",
            "unit/test_training.py::test_class_weights_reach_the_loss",
            "unit/test_training.py::test_balanced_class_weight_gives_every_class_the_same_share",
        ),
    ),
    "H2": PublicFailure(
        "queues that fill the memory",
        (
            "unit/test_silent_settings.py::test_the_warning_counts_training_and_validation",
            "unit/test_public_failures.py::test_a_slow_consumer_costs_the_queue_and_no_more",
            "unit/test_silent_settings.py::test_a_queue_is_counted_in_bytes_of_uint8",
            "unit/test_silent_settings.py::test_a_queue_of_no_size_is_refused",
        ),
    ),
}
